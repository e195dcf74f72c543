"""The commands that `tidelog` finds through the entry point `tidelog.commands`."""

from typing import Final

from tidelog.cli.lazy import LazyCommand

COMMAND: Final = LazyCommand(
    "tidelog_bench.cli.bench", "Run the benchmarks, compare sessions, write a report."
)
"""`tidelog bench`, found through the entry point `tidelog.commands`."""
