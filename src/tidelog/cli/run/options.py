"""The options of `tidelog run`: its own, and one for each of a job, from its declaration.

A flag of a job hands its text on as it is; the configuration reads it, as it reads files and
environment. Nothing is imported that only a run needs.
"""

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from tidelog.cli.options import ENDPOINT, LOG_STORE, add_options, declared
from tidelog.cli.values import duration
from tidelog.errors import ConfigError
from tidelog.options.declaration import Declared
from tidelog.options.kinds import Choice, Duration, Flag, KeyPlace, Names, PathKind, Size
from tidelog.settings import OPTIONS, Resolved, Setting, flag, resolve

if TYPE_CHECKING:
    from tidelog.catalog.locate import Origin
    from tidelog.effects import Effects
    from tidelog.runtime.config import JobArguments
    from tidelog.runtime.restore.choose import RestoreFrom
    from tidelog.storage.open import StoreAccess
    from tidelog.storage.port import ObjectStore

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Where a run reads and writes, and how it reports."""

    input: str | None = declared("--input", help="Input of the job: a path.")
    store: str = declared(
        "--store", required=True, metavar="URL", help="Where checkpoints and state go."
    )
    log_store: str | None = declared("--log-store", **LOG_STORE)
    endpoint: str | None = declared("--endpoint", **ENDPOINT)
    output: str | None = declared(
        "--output", help="Output directory; without it results go to standard output."
    )
    include: str = declared("--include", default="*", metavar="GLOB", help="Input files.")
    follow: bool = declared("--follow", is_flag=True, help="Never end: wait for more input.")
    report_interval: float | None = declared(
        "--report-interval",
        type=duration,
        help="How often to report without a terminal; by default a minute, with --json a second.",
    )
    as_json: bool = declared(
        "--json", is_flag=True, help="Report as JSON lines on standard output."
    )
    verbose: bool = declared("--verbose", is_flag=True, help="Report all figures in each line.")
    quiet: bool = declared("--quiet", is_flag=True, help="Report errors only.")
    debug: bool = declared("--debug", is_flag=True, help="Print tracebacks.")

    def arguments(self, own: tuple[str, ...]) -> "JobArguments":
        """The arguments of the job, of which `own` are for itself alone."""
        from tidelog.runtime.config import JobArguments  # noqa: PLC0415  # only to run

        return JobArguments(self.input, self.output, self.include, self.follow, own)


@dataclass(frozen=True, slots=True)
class MetricsOptions:
    """Where a run serves its metrics, if it does."""

    port: int | None = declared(
        "--metrics-port",
        type=click.IntRange(0, 65535),
        help="Serve Prometheus metrics, and /healthz for liveness probes.",
    )
    host: str = declared(
        "--metrics-host",
        default="127.0.0.1",
        help="The address to serve them at: this machine alone by default; 0.0.0.0 in a pod.",
    )


def _origin(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> "Origin | None":
    if value is None:
        return None
    from tidelog.catalog.locate import parse_origin  # noqa: PLC0415  # only with --from

    try:
        return parse_origin(value, own_store=True)
    except ConfigError as error:
        message = f"{error.found or error.what}: expected {error.expected}"
        raise click.BadParameter(message) from error


@dataclass(frozen=True, slots=True)
class StartOptions:
    """What a job starts from: at most one option chooses a checkpoint; without any, the newest."""

    checkpoint: int | None = declared(
        "--restore-checkpoint",
        metavar="N",
        type=click.IntRange(min=0),
        help="Resume from this checkpoint, once, and not from the newest; output committed since "
        "then comes again.",
    )
    origin: "Origin | None" = declared(  # noqa: RUF009  # a field, as the others
        "--from",
        metavar="URL@NAME",
        callback=_origin,
        help="Start from a savepoint by name (or a checkpoint's number, or latest), once; @NAME is "
        "one in the job's own store. One of another store counts while the own one has no "
        "checkpoint.",
    )
    claim: bool = declared(
        "--claim/--no-claim",
        default=False,
        help="With --from: the savepoint becomes the job's, which shares its files and drops it in "
        "time. Otherwise it stays, and after the first checkpoint the job needs none of its files.",
    )
    keep_output: bool = declared(
        "--keep-output",
        is_flag=True,
        help="With --from URL@NAME: go on with the output of the other store's job, which must not "
        "run any more and is refused by its sinks from then on, and commit what it had "
        "pre-committed. Otherwise that is left to it; give this job an output of "
        "its own.",
    )

    def __post_init__(self) -> None:
        if self.checkpoint is not None and self.origin is not None:
            raise click.UsageError("--restore-checkpoint and --from exclude each other")
        if self.claim and self.origin is None:
            raise click.UsageError("--claim needs --from")
        if self.keep_output and (self.origin is None or not self.origin.url):
            raise click.UsageError("--keep-output needs --from URL@NAME")

    def restore_from(
        self, store: "ObjectStore", effects: "Effects", access: "StoreAccess"
    ) -> "RestoreFrom | None":
        """What the runner starts from; another store is opened the same way."""
        if self.origin is None:
            return None
        from tidelog.runtime.restore.choose import RestoreFrom  # noqa: PLC0415  # only with --from

        other = access.open(self.origin.url, effects) if self.origin.url else store
        if other.url == store.url:
            return RestoreFrom(self.origin.checkpoint, claim=self.claim)
        return RestoreFrom(
            self.origin.checkpoint, other, claim=self.claim, keep_output=self.keep_output
        )


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


def _parameter(option: Declared) -> str:
    return _PREFIX + "__".join(option.path)


class JobOption(click.Option):
    """An option of the job, whose text is read later, with the file and the environment."""

    def __init__(self, *args: Any, expected: str, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.expected = expected


def _option(declaration: Declared) -> Callable[[Any], Any]:
    one = declaration.option
    names = [flag(declaration), *one.aliases, _parameter(declaration)]
    about = f"{one.help}  [default: {declaration.default_text}]"
    if isinstance(one.kind, Flag):
        names[0] = f"{names[0]}/--no-{names[0].removeprefix('--')}"
        return click.option(*names, default=None, help=about)
    if isinstance(one.kind, Names):
        return click.option(*names, multiple=True, metavar="NAME", help=about)
    if isinstance(one.kind, Choice):
        # Checked here, or an option whose word is forgotten would take the next option for it.
        words = click.Choice(one.kind.words)
        return click.option(*names, type=words, metavar="|".join(words.choices), help=about)
    metavar, expected = _METAVARS.get(type(one.kind), "N"), one.kind.expected
    return click.option(*names, cls=JobOption, expected=expected, metavar=metavar, help=about)


def config_options(function: Callable[..., R]) -> Callable[..., R]:
    """Add --config and the job's options to a command, which gets them as one argument `config`: a
    function that reads them with the file and the environment.
    """

    @add_options(_CONFIG_FILE, *map(_option, OPTIONS.values()))
    @functools.wraps(function)
    def command(config_file: Path | None, **options: Any) -> R:
        flags = []
        for declaration in OPTIONS.values():
            raw = options.pop(_parameter(declaration))
            if isinstance(raw, tuple):  # of a flag that may be repeated
                raw = ",".join(raw) or None
            if raw is not None:
                flags.append(Setting(declaration.name, raw, f"option {flag(declaration)}"))

        def config() -> Resolved:
            return resolve(config_file, os.environ, flags)

        return function(config=config, **options)

    decorated: Callable[..., R] = command
    return decorated


_COMMON: Final = {
    *("--store", "--input", "--output", "--include", "--follow", "--config", "--parallelism"),
    *("--workers", "--memory", "--checkpoint-interval", "--from", "--encryption-key"),
    *("--metrics-port", "--json", "--quiet", "--help", "--help-all"),
}
"""The options that `--help` lists."""


_ALL: Final = "tidelog.help-all"
"""In the `meta` of a command that is asked for all of its options."""


def _help_all(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        context.meta[_ALL] = True
        click.echo(context.get_help(), color=context.color)
        context.exit()


HELP_ALL: Final = click.option(
    "--help-all",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_help_all,
    help="Show all options, part by part, and exit.",
)


class SectionedCommand(click.Command):
    """A command whose help lists the usual options; with `--help-all` all, part by part."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the command's own options first."""
        sections: dict[str, list[tuple[str, str]]] = {"Options": [], "Job": []}
        lists_all, left_out = _ALL in ctx.meta, 0
        for parameter in self.get_params(ctx):
            record, name = parameter.get_help_record(ctx), parameter.name or ""
            if record is None or isinstance(parameter, click.Argument):
                continue
            if not lists_all and _COMMON.isdisjoint(parameter.opts):
                left_out += 1
            elif not lists_all:
                sections["Options"].append(record)
            else:
                part, *inner = name.removeprefix(_PREFIX).split("__")
                job = f"Job: {part}" if inner else "Job"
                section = job if name.startswith(_PREFIX) else "Options"
                sections.setdefault(section, []).append(record)
        for section, records in sections.items():
            if not records:
                continue
            with formatter.section(section):
                formatter.write_dl(records)
        if left_out:
            formatter.write_paragraph()
            formatter.write_text(f"{left_out} more options: tidelog run --help-all")
