"""The commands that `tidelog` finds through the entry point `tidelog.commands`."""

from typing import Final

from tidelog.cli.lazy import LazyCommand

COMMAND: Final = LazyCommand(
    "tidelog_simulator.cli.simulate",
    "Run whole jobs in virtual time, under faults, and check what must hold.",
)
"""`tidelog simulate`, found through the entry point `tidelog.commands`."""
