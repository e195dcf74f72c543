"""Groups of commands that are imported when they run.

Invariant: a command's module is imported only when that command runs, so `--help` costs no more
than click itself.
"""

import signal
from collections.abc import Mapping
from functools import cached_property
from importlib import import_module
from typing import Any, NamedTuple

import click

from tidelog.credentials import masked


class LazyCommand(NamedTuple):
    """A command that is imported when it runs."""

    place: str
    """The module that has it as `command`, or MODULE:NAME."""
    about: str
    """One line for `--help`."""

    def load(self) -> click.Command:
        module, _, name = self.place.partition(":")
        command: click.Command = getattr(import_module(module), name or "command")
        return command


class LazyGroup(click.Group):
    """A group of lazy commands, and of those that other packages add.

    `entry_points` names a group of entry points; each refers to a LazyCommand.
    """

    def __init__(
        self,
        *args: Any,
        lazy: Mapping[str, LazyCommand],
        entry_points: str | None = None,
        **rest: Any,
    ) -> None:
        super().__init__(*args, **rest)
        self._lazy = lazy
        self._entry_points = entry_points

    @cached_property
    def lazy_commands(self) -> dict[str, LazyCommand]:
        """All commands by name, sorted."""
        found = dict(self._lazy)
        if self._entry_points is not None:
            # With its parser of messages it takes as long as click, and few commands need it.
            from importlib.metadata import entry_points  # noqa: PLC0415

            found |= {point.name: point.load() for point in entry_points(group=self._entry_points)}
        return dict(sorted(found.items()))

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.lazy_commands)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        command = self._lazy.get(cmd_name) or self.lazy_commands.get(cmd_name)
        return None if command is None else command.load()

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; what is wrong with its arguments is said without secrets in it.

        Raises SystemExit when it is interrupted.
        """
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise SystemExit(128 + signal.SIGINT) from None
        except click.ClickException as error:
            error.message = masked(error.message)  # type: ignore[misc]  # what click prints
            raise

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, each.about) for name, each in self.lazy_commands.items()])
