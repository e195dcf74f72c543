"""Groups of commands, one file per command.

Invariant: a command's module is imported only when that command runs, so `--help` costs no more
than click itself.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click


class LazyGroup(click.Group):
    """A group whose commands lie in `tidelog.cli.<prefix><name>` as `command`."""

    def __init__(self, *args: Any, about: Mapping[str, str], prefix: str = "", **rest: Any) -> None:
        super().__init__(*args, **rest)
        self._about = about
        self._prefix = prefix

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, sorted."""
        return sorted(self._about)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command's module."""
        if cmd_name not in self._about:
            return None
        module = import_module(f"tidelog.cli.{self._prefix}{cmd_name.replace('-', '_')}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(sorted(self._about.items()))
