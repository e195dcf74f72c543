"""When checkpoints are taken: as a job sets it, and savepoints as somebody asks for them.

Invariants: a request never changes, and is no other one, whatever both ask for; its name is a
label that no slot number can be taken for.
"""

import re
from dataclasses import dataclass
from typing import Final

import msgspec

from tidelog.checkpoint.manifest import SavepointFormat
from tidelog.errors import ConfigError
from tidelog.options.declaration import option
from tidelog.options.kinds import ABOVE_ZERO, Duration, Integer, Range

_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,100}")


@dataclass(frozen=True, slots=True)
class Schedule:
    """When checkpoints happen; all times in seconds."""

    interval: float = option(
        1.0,
        Duration(ABOVE_ZERO),
        "Time from the start of a checkpoint to the start of the next.",
        when="Shorter commits output sooner and costs more manifests, one or two objects each; "
        "longer replays more input after a failure.",
    )
    timeout: float = option(
        600.0,
        Duration(ABOVE_ZERO),
        "A checkpoint that takes longer is given up, and counts as failed.",
        when="Raise it when barriers wait long behind records, or use unaligned checkpoints.",
    )
    min_pause: float = option(
        0.0,
        Duration(),
        "Least time from the end of a checkpoint to the start of the next.",
        when="Raise it when checkpoints take nearly as long as the interval and the job should "
        "work in between.",
    )
    tolerable_failures: int = option(
        10,
        Integer(Range(0)),
        "Checkpoints in a row that may fail before the job stops.",
        when="0 to stop at the first failure; more where the store is known to pause.",
        aliases=("--tolerable-failures",),
    )


class SavepointRequest(msgspec.Struct, frozen=True, eq=False):
    """A savepoint to be taken.

    With `stop` the job ends with the savepoint: sources stop at its barrier, and nothing is emitted
    after it. With `drain` operators first emit all that they hold back, as at the end of the data.
    """

    name: str
    format: SavepointFormat = "native"
    stop: bool = False
    drain: bool = False
    timeout_s: float | None = None
    """Seconds until the savepoint is given up; None: as for checkpoints."""


def check_name(name: str) -> str:
    """The name itself; raises ConfigError when no savepoint can have it."""
    legal = isinstance(name, str) and _NAME.fullmatch(name)
    if legal and not name.isdecimal() and name != "latest":
        return name
    raise ConfigError(
        f"savepoint name {name!r}",
        expected="1 to 100 of A-Z a-z 0-9 _ . -, not a number and not 'latest'",
        action="choose another name",
    )
