"""What the checkpoint coordinator decides, and what it is asked for: data alone."""

import re
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

import msgspec

from tidelog.checkpoint.manifest import SavepointFormat
from tidelog.errors import ConfigError
from tidelog.ids import CheckpointId

Task = TypeVar("Task", bound=Hashable)
State = TypeVar("State")

_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,100}")
"""The name of a savepoint: a label that no slot number can be taken for."""


class SavepointRequest(msgspec.Struct, frozen=True, eq=False):
    """A savepoint to be taken. It is no other one, whatever both ask for.

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


class Trigger(msgspec.Struct, Generic[Task], frozen=True):
    """Send barriers of this checkpoint to the tasks where it starts."""

    checkpoint: CheckpointId
    final: bool
    """All tasks have ended: no other checkpoint follows this one if it completes."""
    starts_at: frozenset[Task]
    savepoint: SavepointRequest | None = None
    before_end: bool = False
    """Barriers capture the state before the end: no sink pre-commits, no manifest is written."""


class Drain(msgspec.Struct, frozen=True):
    """Tell the sources that their data ends here."""


class BeforeEnd(msgspec.Struct, Generic[Task, State], frozen=True):
    """Every task's state before the end is durable: all manifests from now on have it."""

    checkpoint: CheckpointId
    states: dict[Task, State]


class End(msgspec.Struct, Generic[Task], frozen=True):
    """Tell these sources, which have read all of their input, to end."""

    tasks: frozenset[Task]


class NothingNew(msgspec.Struct, frozen=True):
    """The job had ended, and there is nothing more to read: tell the tasks to leave."""


class Store(msgspec.Struct, Generic[Task, State], frozen=True):
    """Every task acknowledged: write the manifest."""

    checkpoint: CheckpointId
    states: dict[Task, State]
    final: bool
    """The finish of all tasks is part of the checkpoint: nothing is left to do after it."""
    savepoint: SavepointRequest | None = None


class Abort(msgspec.Struct, frozen=True):
    """Tell the tasks that this checkpoint will not complete."""

    checkpoint: CheckpointId
    reason: str
    savepoint: SavepointRequest | None = None
    """The savepoint that the checkpoint was, when it is not tried again."""


class Refuse(msgspec.Struct, frozen=True):
    """Answer a request for a savepoint: there will be none."""

    savepoint: SavepointRequest
    reason: str


class Complete(msgspec.Struct, Generic[Task, State], frozen=True):
    """Tell the tasks that this checkpoint is durable: sinks commit."""

    checkpoint: CheckpointId
    final: bool
    """The last one of this run."""
    exited: dict[Task, State]
    """Tasks that no later checkpoint needs: they leave."""
    savepoint: SavepointRequest | None = None


class FailJob(msgspec.Struct, frozen=True):
    """Too many checkpoints failed in a row."""

    failures: int
    reason: str


Decision = (
    Trigger[Task]
    | Drain
    | BeforeEnd[Task, State]
    | End[Task]
    | NothingNew
    | Store[Task, State]
    | Abort
    | Refuse
    | Complete[Task, State]
    | FailJob
)
