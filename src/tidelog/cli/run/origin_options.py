"""Options that say what a job starts from.

Invariant: at most one of them chooses a checkpoint; without any the newest in the store counts.
"""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from tidelog.cli.options import option
from tidelog.errors import ConfigError
from tidelog.ids import Slot

if TYPE_CHECKING:
    from tidelog.catalog.locate import Origin
    from tidelog.effects import Effects
    from tidelog.runtime.restore.choose import RestoreFrom
    from tidelog.storage.access import StoreAccess
    from tidelog.storage.port import ObjectStore

R = TypeVar("R")


class StartOptions(NamedTuple):
    """What the user chose to start from."""

    slot: Slot | None
    origin: "Origin | None"
    claim: bool
    keep_output: bool

    def restore_from(
        self, own: "ObjectStore", effects: "Effects", access: "StoreAccess"
    ) -> "RestoreFrom | None":
        """What the runner starts from; another store is opened the same way."""
        if self.origin is None:
            return None
        from tidelog.runtime.restore.choose import RestoreFrom  # noqa: PLC0415  # only with --from

        if not self.origin.url:
            return RestoreFrom(self.origin.place, claim=self.claim)
        other = access.open(self.origin.url, effects)
        if other.url == own.url:
            return RestoreFrom(self.origin.place, claim=self.claim)
        return RestoreFrom(self.origin.place, other, claim=self.claim, keep_output=self.keep_output)


def _origin(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> "Origin | None":
    if value is None:
        return None
    from tidelog.catalog.locate import parse_origin  # noqa: PLC0415  # only with --from

    try:
        return parse_origin(value, own_store=True)
    except ConfigError as error:
        raise click.BadParameter(
            f"{error.found or error.what}: expected {error.expected}"
        ) from error


def start_options(function: Callable[..., R]) -> Callable[..., R]:
    """Add --restore-slot, --from, --claim/--no-claim and --keep-output, as one argument `start`."""

    @click.option(
        "--restore-slot",
        type=click.IntRange(min=0),
        help="Resume from this checkpoint, once, and not from the newest; output committed since "
        "then comes again.",
    )
    @click.option(
        "--from",
        "origin",
        metavar="URL@NAME",
        callback=_origin,
        help="Start from a savepoint by name (or a slot's number, or latest), once; @NAME is one "
        "in the job's own store. One of another store counts while the own one has no checkpoint.",
    )
    @option(
        "--claim/--no-claim",
        default=False,
        help="With --from: the savepoint becomes the job's, which shares its files and drops it in "
        "time. Otherwise it stays, and after the first checkpoint the job needs none of its files.",
    )
    @click.option(
        "--keep-output",
        is_flag=True,
        help="With --from URL@NAME: go on with the output of the other store's job, which must not "
        "run any more, and commit what it had pre-committed. Otherwise that is left to it; give "
        "this job an output of its own.",
    )
    @functools.wraps(function)
    def command(
        restore_slot: int | None,
        origin: "Origin | None",
        claim: bool,
        keep_output: bool,
        **others: Any,
    ) -> R:
        if restore_slot is not None and origin is not None:
            raise click.UsageError("--restore-slot and --from exclude each other")
        if claim and origin is None:
            raise click.UsageError("--claim needs --from")
        if keep_output and (origin is None or not origin.url):
            raise click.UsageError("--keep-output needs --from URL@NAME")
        slot = None if restore_slot is None else Slot(restore_slot)
        return function(start=StartOptions(slot, origin, claim, keep_output), **others)

    return command
