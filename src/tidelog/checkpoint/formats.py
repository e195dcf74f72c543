"""Formats of what a checkpoint refers to, by kind, and whether this release knows them. Pure.

Invariants: a manifest names each format above the first, so that reading it says whether a release
can go on from the checkpoint, before a start takes a generation or writes anything; a kind that a
release does not know is newer than it. Who changes how something is stored raises its number here.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from tidelog.changelog import block, segment
from tidelog.errors import FormatVersionError
from tidelog.storage.document import FORMAT_VERSION

FIRST: Final = 1
FORMATS: Final[dict[str, int]] = {
    "blocks": block.VERSION,
    "segments": segment.VERSION,
    "descriptors": FORMAT_VERSION,
    "tables": 1,
    "in-flight data": 1,
    "keys": 1,
    "values": 1,
    "states": 1,
}
"""The newest format that this release writes and reads: rows of state by kind are `states`."""

POSITIONS: Final = "positions"
"""The kind of a source's stored positions; their format is `Source.position_format`."""
TRANSACTIONS: Final = "transactions"
"""The kind of a sink's pre-committed transactions; their format is `Sink.transaction_format`."""


def above_first(formats: Mapping[str, int]) -> dict[str, int]:
    """What a manifest names of these formats: every release knows the first ones."""
    return {kind: number for kind, number in formats.items() if number > FIRST}


def check_formats(what: str, formats: Mapping[str, int], supported: Mapping[str, int]) -> None:
    """Raises FormatVersionError, naming the kind, where something is newer than supported."""
    newer = [kind for kind, number in formats.items() if number > supported.get(kind, 0)]
    if newer:
        raise FormatVersionError(
            what,
            expected=_listed(newer, supported),
            found=_listed(newer, formats),
            action="use the tidelog release, or the program, that wrote it, or a newer one; or go "
            "back to a savepoint that this one has written, `--from @NAME`; nothing was changed",
        )


def _listed(kinds: Iterable[str], formats: Mapping[str, int]) -> str:
    return ", ".join(
        f"{kind} of format {formats[kind]}" if kind in formats else f"no {kind}"
        for kind in sorted(kinds)
    )
