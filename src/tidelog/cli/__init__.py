"""Internal: the command line, a package per kind of command.

Invariant: a command's module is imported only when that command runs, so `tidelog --help` costs
no more than click itself.
"""

import logging
import signal
import sys
from collections.abc import Mapping
from functools import cached_property
from importlib import import_module
from typing import Any, Final, NamedTuple

import click

from tidelog.credentials import masked


class LazyCommand(NamedTuple):
    target: str
    """The module that has it as `command`, or MODULE:NAME."""
    about: str
    """One line for `--help`."""

    def load(self) -> click.Command:
        module, _, name = self.target.partition(":")
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
        commands = dict(self._lazy)
        if self._entry_points is not None:
            # With its parser of messages it takes as long as click, and few commands need it.
            from importlib.metadata import entry_points  # noqa: PLC0415

            for point in entry_points(group=self._entry_points):
                package = point.dist.name if point.dist is not None else point.module
                try:
                    commands.setdefault(point.name, _lazy_command(point.load()))
                except (Exception, SystemExit) as error:
                    _warn(_broken(point.name, package, error))
        return dict(sorted(commands.items()))

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.lazy_commands)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in self._lazy:
            return self._lazy[cmd_name].load()
        command = self.lazy_commands.get(cmd_name)
        try:
            return None if command is None else command.load()
        except (Exception, SystemExit) as error:
            package = command.target.partition(".")[0] if command is not None else ""
            raise click.ClickException(_broken(cmd_name, package, error)) from error

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the first argument names; raises UsageError, which names a near one."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from difflib import get_close_matches  # noqa: PLC0415  # only for a mistake

            for name in get_close_matches(args[0], self.list_commands(ctx), n=1):
                error.message += f" Did you mean {name!r}?"  # type: ignore[misc]
            raise

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; errors show no secrets of it, an interrupt raises SystemExit."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise SystemExit(128 + signal.SIGINT) from None
        except click.ClickException as error:
            message = error.message
            if isinstance(error, click.BadOptionUsage):  # as an option without its value
                message += self._form(ctx, error.option_name)
            error.message = masked(message)  # type: ignore[misc]  # what click prints
            if ctx.params.get("log_format") == "json":
                from tidelog.cli.logs import say  # noqa: PLC0415  # not needed for --help

                say(f"Error: {error.format_message()}", logging.ERROR)
                raise SystemExit(error.exit_code) from None
            raise

    def _form(self, ctx: click.Context, name: str) -> str:
        """How the value of a command's option is written, if its type or the option says so."""
        command = self.get_command(ctx, ctx.invoked_subcommand or "")
        parameters = [] if command is None else command.params
        option = next((parameter for parameter in parameters if name in parameter.opts), None)
        if option is None:
            return ""
        try:
            option.type.convert("", option, ctx)
        except click.BadParameter as refusal:
            advice = refusal.message.partition("; ")[2]
            return advice and f" {advice[0].upper()}{advice[1:]}."
        expected = getattr(option, "expected", "")
        return expected and f" Expected {expected}."

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, command.about) for name, command in self.lazy_commands.items()]
            )


def _lazy_command(command: object) -> LazyCommand:
    if not isinstance(command, LazyCommand):
        raise TypeError(f"it refers to {type(command).__name__}, not to a LazyCommand")
    return command


def _broken(name: str, package: str, error: BaseException) -> str:
    """What keeps the command of another package from being used, in one line."""
    reason = " ".join(f"{type(error).__name__}: {error}".split())
    return (
        f"command {name!r} of package {package} is left out, as it cannot be imported: {reason}. "
        f"Next: install what it lacks, as with `pip install --upgrade {package}`, or uninstall it."
    )


def _warn(text: str) -> None:
    from tidelog.cli.logs import say  # noqa: PLC0415  # few have such a command

    say(f"Warning: {masked(text)}", logging.WARNING)


def _commands(*entries: tuple[str, str, str]) -> dict[str, LazyCommand]:
    """Commands by name, each with its place in this package and a line for `--help`."""
    return {name: LazyCommand(f"tidelog.cli{target}", about) for name, target, about in entries}


_COMMANDS: Final = _commands(
    ("checkpoints", ".store.checkpoints", "List checkpoints and show what they hold."),
    ("clone", ".store.clone", "Begin another store with a checkpoint of this one."),
    ("config", ".run.config", "Show, check and explain the options of a job."),
    (
        "estimate",
        ".estimate.estimate",
        "Estimate storage, requests and the bill of a job; needs no store.",
    ),
    ("gc", ".store.health:gc_command", "Delete objects that crashes left behind."),
    ("inspect", ".store.health:inspect_command", "Check every invariant of a store."),
    ("key", ".store.key", "Make the key of an encrypted store, or change it."),
    ("log", ".store.log", "Print the changes in the log, decoded."),
    (
        "overhead",
        ".estimate.overhead",
        "Measure what the changelog of a job costs, and what formulas predict.",
    ),
    ("plan", ".estimate.plan", "Find settings for a restore time and a budget; needs no store."),
    ("report", ".store.ui:report_command", "Write what `ui` shows as one HTML file."),
    ("restore", ".store.restore", "Write a checkpoint's state to a local directory."),
    ("run", ".run.run", "Run a job in this process until its input ends."),
    ("savepoint", ".run.control:savepoint_command", "Take a savepoint of a running job."),
    ("spark", ":spark_group", "Work with Spark Structured Streaming: settings, jar, checkpoints."),
    ("stop", ".run.control:stop_command", "Stop a running job with a savepoint."),
    ("store", ":store_group", "Test whether a store is safe for jobs."),
    ("ui", ".store.ui:ui_command", "Show a job and its store on a page in the browser."),
    ("verify", ".store.verify", "Restore every checkpoint and compare it with what it should be."),
)
"""The commands of the library; `bench` is an entry point of its own package."""
_SPARK: Final = _commands(
    ("check", ".spark.conf:check_command", "Check whether a query's settings give the guarantees."),
    (
        "checkpoints",
        ".spark.checkpoints:checkpoints_command",
        "Show what a query's checkpoint holds.",
    ),
    ("conf", ".spark.conf:conf_command", "Print the settings that turn the plug-in on."),
    (
        "export",
        ".spark.checkpoints:export_command",
        "Turn a checkpoint back into one of Spark alone.",
    ),
    ("jar", ".spark.conf:jar_command", "Compile the plug-in and say where its jar is."),
    (
        "savepoint",
        ".spark.savepoint:savepoint_command",
        "Make a savepoint of a query, with which its job runs embedded.",
    ),
    ("run", ".spark.run:run_command", "Run a job as a query of Spark."),
)
_STORE: Final = _commands(
    ("check", ".store.health:check_command", "Test whether a store keeps what jobs rely on.")
)


@click.group("spark", cls=LazyGroup, lazy=_SPARK)
def spark_group() -> None:
    """Work with Spark Structured Streaming: settings, jar, checkpoints.

    In PySpark, `tidelog.spark.configure(SparkSession.builder)` does what conf and jar do.
    """


@click.group("store", cls=LazyGroup, lazy=_STORE)
def store_group() -> None:
    """Test a store before a job uses it."""


@click.group(cls=LazyGroup, lazy=_COMMANDS, entry_points="tidelog.commands")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"], case_sensitive=False),
    default="warning",
    show_default=True,
    help="Least level of log records on standard error.",
)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Form of log records: lines for people, or a JSON document per line.",
)
@click.version_option(package_name="tidelog", prog_name="tidelog", message="%(prog)s %(version)s")
@click.pass_context
def main(context: click.Context, log_level: str, log_format: str) -> None:
    """Durable state for stream processing: run jobs, look into their stores, repair them.

    A store URL is a path, file:///path, s3://bucket/prefix, or a URL of any scheme fsspec knows.
    """
    from tidelog.cli.logs import show_logs  # noqa: PLC0415  # not needed for --help

    # From now on there may be something to end in order.
    if getattr(signal.getsignal(signal.SIGINT), "__name__", "") == "end_at_once":
        signal.signal(signal.SIGINT, signal.default_int_handler)
    show_logs(context, log_level, log_format)


def run() -> None:
    """As `main`; no thread that is left keeps the process then."""
    try:
        main()
    except SystemExit as end:
        if "tidelog.effects" in sys.modules:  # no command has begun threads otherwise
            from tidelog.effects import end_soon  # noqa: PLC0415

            end_soon(end.code if isinstance(end.code, int) else int(end.code is not None))
        raise
