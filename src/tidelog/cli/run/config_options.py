"""The options of a job as options of a command: one flag for each, from its declaration.

A flag hands its text on as it is; the configuration reads it, as it reads files and environment.
"""

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from tidelog.cli.options import add_options
from tidelog.options.declaration import Declared
from tidelog.options.kinds import Choice, Duration, Flag, KeyPlace, Names, PathKind, Size
from tidelog.settings.declared import OPTIONS, flag
from tidelog.settings.resolve import Given, Resolved, resolve

R = TypeVar("R")

_PREFIX: Final = "job_option__"
_METAVARS: Final = {
    Duration: "TIME",
    Size: "SIZE",
    PathKind: "PATH",
    Names: "NAME",
    KeyPlace: "KEY",
}

_CONFIG_FILE: Final = click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    envvar="TIDELOG_CONFIG",
    show_envvar=True,
    help="Options of the job in TOML; TIDELOG__ variables win over it, and options given here win "
    "over both. `tidelog config explain` lists what can stand in it.",
)


def _parameter(declared: Declared) -> str:
    return _PREFIX + "__".join(declared.path)


def _option(declared: Declared) -> Callable[[Any], Any]:
    one = declared.option
    names = [flag(declared), *one.aliases, _parameter(declared)]
    shown = f"{one.help}  [default: {declared.default_text}]"
    if isinstance(one.kind, Flag):
        names[0] = f"{names[0]}/--no-{names[0].removeprefix('--')}"
        return click.option(*names, default=None, help=shown)
    if isinstance(one.kind, Names):
        return click.option(*names, multiple=True, metavar="NAME", help=shown)
    metavar = "|".join(one.kind.words) if isinstance(one.kind, Choice) else None
    return click.option(*names, metavar=metavar or _METAVARS.get(type(one.kind), "N"), help=shown)


def config_options(function: Callable[..., R]) -> Callable[..., R]:
    """Add --config and the job's options to a command, which gets them as one argument `config`: a
    function that reads them with the file and the environment.
    """

    @add_options(_CONFIG_FILE, *map(_option, OPTIONS.values()))
    @functools.wraps(function)
    def command(config_file: Path | None, **given: Any) -> R:
        flags = []
        for declared in OPTIONS.values():
            raw = given.pop(_parameter(declared))
            if raw is not None and raw != ():
                flags.append(Given(declared.name, raw, f"option {flag(declared)}"))

        def config() -> Resolved:
            return resolve(config_file, os.environ, flags)

        return function(config=config, **given)

    made: Callable[..., R] = command
    return made


class SectionedCommand(click.Command):
    """A command whose help lists the job's options apart from its own, part by part."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the command's own options first."""
        sections: dict[str, list[tuple[str, str]]] = {"Options": [], "Job": []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is None:
                continue
            name = parameter.name or ""
            path = name.removeprefix(_PREFIX).split("__")
            section = "Options" if not name.startswith(_PREFIX) else "Job"
            if section == "Job" and len(path) > 1:
                section = f"Job: {path[0]}"
            sections.setdefault(section, []).append(record)
        for section, records in sections.items():
            with formatter.section(section):
                formatter.write_dl(records)
