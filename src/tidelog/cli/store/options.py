"""What the commands that look into a store have in common: arguments, errors, exit codes.

Invariants: a command ends with 0 (fine), 1 (a problem, an error), 2 (wrong usage) or 130
(Ctrl-C); one that gives a verdict ends with 1 for a bad one alone, and with 4 when an error left
it without any; an error is its message and the next action, a traceback only with --debug; the
store is closed in the end.
"""

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Concatenate, Final, ParamSpec

import click

from tidelog.catalog.locate import CheckpointName, parse_checkpoint
from tidelog.checkpoint.manifest import Checkpoint, OperatorState, SubtaskState
from tidelog.cli.effects import command_effects
from tidelog.cli.exit_codes import EXIT_INTERRUPTED, EXIT_PROBLEM, EXIT_UNDECIDED, exit_code_of
from tidelog.cli.options import add_options, encryption_key_option, endpoint_option, option
from tidelog.cli.output import Output, defect, print_traceback
from tidelog.effects import Effects
from tidelog.errors import (
    ConfigError,
    CorruptObjectError,
    FormatVersionError,
    ObjectNotFoundError,
    RestoreError,
    TidelogError,
)
from tidelog.options.units import plural
from tidelog.storage.open import StoreAccess
from tidelog.storage.port import ObjectStore

P = ParamSpec("P")

_OF_WHAT_IS_STORED: Final = (
    ObjectNotFoundError,
    CorruptObjectError,
    FormatVersionError,
    RestoreError,
)
"""Errors that say something of what is stored: they are a verdict."""


def checkpoint_name(text: str) -> CheckpointName:
    """A checkpoint's number, a savepoint's name or `latest`, of an option; raises BadParameter."""
    try:
        return parse_checkpoint(text)
    except ConfigError as error:
        raise click.BadParameter(str(error)) from error


checkpoint_option = option(
    "--checkpoint",
    type=checkpoint_name,
    default="latest",
    help="A checkpoint's number, the name of a savepoint, or latest.",
)


@dataclass(frozen=True, slots=True)
class StoreCommand:
    url: str
    """As the user wrote it."""
    access: StoreAccess
    effects: Effects
    store: ObjectStore
    output: Output


def on_this_machine(
    function: Callable[Concatenate[Output, P], int | Coroutine[Any, Any, int]],
    *,
    failed: int = EXIT_PROBLEM,
) -> Callable[..., None]:
    """Make a command function of `function`, asynchronous or not, which prints on the Output and
    returns the exit code; adds --json and --debug. `failed` is the exit code of an error.
    """

    @click.option(
        "--json", "as_json", is_flag=True, help="Print JSON; see docs/reference/cli-json.md."
    )
    @click.option("--debug", is_flag=True, help="Print tracebacks.")
    @functools.wraps(function)
    def command(as_json: bool, debug: bool, **options: Any) -> None:
        output = Output(as_json=as_json)

        def work() -> int:
            code = function(output, **options)  # type: ignore[call-arg]
            return code if isinstance(code, int) else asyncio.run(code)

        click.get_current_context().exit(reported(work, output, debug=debug, failed=failed))

    return command


def on_store(
    function: Callable[Concatenate[StoreCommand, P], Awaitable[int]],
    location: Callable[[str], str] = str,
    *,
    encrypted: bool = True,
    failed: int = EXIT_PROBLEM,
) -> Callable[..., None]:
    """Make a command function of `function`, which works on the store at URL and returns the exit
    code; adds URL, --endpoint, --json and --debug, and --encryption-key where it can be
    `encrypted`. `location` of the URL is what is opened, `failed` the exit code of an error.
    """

    access_options = [endpoint_option, encryption_key_option] if encrypted else [endpoint_option]

    @click.argument("url")
    @add_options(*access_options)
    @partial(on_this_machine, failed=failed)
    @functools.wraps(function)
    async def command(
        output: Output,
        /,
        url: str,
        endpoint: str | None,
        encryption_key: str | None = None,
        **options: Any,
    ) -> int:
        access = StoreAccess(endpoint, encryption_key)
        async with opened(url, access, output, location) as invocation:
            return await function(invocation, **options)  # type: ignore[call-arg]

    return command


@asynccontextmanager
async def opened(
    url: str, access: StoreAccess, output: Output, location: Callable[[str], str] = str
) -> AsyncIterator[StoreCommand]:
    """Open the store at the `location` of a URL, and close it again."""
    with command_effects() as effects:
        store = access.open(location(url), effects)
        try:
            yield StoreCommand(url, access, effects, store, output)
        finally:
            await store.close()


def reported(
    work: Callable[[], int], output: Output, *, debug: bool, failed: int = EXIT_PROBLEM
) -> int:
    """Do `work` and report its error, if any; returns the exit code."""
    error: TidelogError
    try:
        return work()
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except (BrokenPipeError, click.ClickException):
        raise  # The reader has enough, or the command is used wrongly: click says so.
    except TidelogError as failure:
        error = failure
    except Exception as cause:
        error = defect(cause)
    if debug:
        print_traceback(error)
    output.error(error)
    code = exit_code_of(error)
    undecided = code == EXIT_PROBLEM and not isinstance(error, _OF_WHAT_IS_STORED)
    return failed if undecided else code


on_store_for_a_verdict = partial(on_store, failed=EXIT_UNDECIDED)
"""Makes a command that says whether a store is good: an error is no verdict."""


def selected(
    checkpoint: Checkpoint, operator: str | None, subtask: int | None = None
) -> list[tuple[OperatorState, SubtaskState]]:
    """The subtasks that options chose, all of them for None; raises ConfigError for no match."""
    matches = [
        (owner, state)
        for owner, state in checkpoint.subtasks()
        if operator in (None, owner.id) and subtask in (None, state.index)
    ]
    if matches:
        return matches
    operators = ", ".join(
        f"{o.id} ({plural(len(o.subtasks), 'subtask')})" for o in checkpoint.operators
    )
    options = (("operator", operator), ("subtask", subtask))
    raise ConfigError(
        ", ".join(f"{option} {value}" for option, value in options if value is not None),
        expected=f"one of {operators}, counted from 0",
        found=f"none of that name in checkpoint {checkpoint.slot}",
        action="correct the option",
    )
