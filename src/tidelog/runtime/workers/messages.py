"""What the parent and the workers of a job say to each other.

Invariant: the parent decides, workers report; workers send each other records, and nothing else.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidelog.checkpoint.manifest import Author, StateInfo, SubtaskState
from tidelog.checkpoint.startup import History
from tidelog.ids import CheckpointId, SubtaskId
from tidelog.runtime.restore.choose import Resumption
from tidelog.runtime.status.status import JobStatus

# --- from the parent


@dataclass(frozen=True, slots=True)
class Restore:
    """Restore the subtasks of the worker."""

    author: Author
    history: History
    resumption: Resumption
    """Without the store that it is from, which a worker opens itself."""
    from_origin: bool
    directory: Path
    """Where the worker has its own directory."""


@dataclass(frozen=True, slots=True)
class Build:
    """No newer start is there: user functions and sinks may be opened."""


@dataclass(frozen=True, slots=True)
class Run:
    """All workers are ready."""

    begun: Set[str]
    """Sources of which an earlier run has begun splits."""


@dataclass(frozen=True, slots=True)
class Call:
    """Call a method of a task."""

    subtask: SubtaskId
    method: str
    arguments: tuple[Any, ...] = ()
    reply: int | None = None
    """The number of the `Reply` when the method has ended; None: none is awaited."""


@dataclass(frozen=True, slots=True)
class Pace:
    """What the cadence of checkpoints is told, by method."""

    method: str
    argument: Any


@dataclass(frozen=True, slots=True)
class Ahead:
    """How far event time is in splits, by source: from a worker in its own, to a worker in all
    others.
    """

    least: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Count:
    """List the objects of the worker."""

    reply: int


@dataclass(frozen=True, slots=True)
class Close:
    """Close everything and end."""


# --- from a worker


@dataclass(frozen=True, slots=True)
class Restored:
    """The subtasks are restored."""


@dataclass(frozen=True, slots=True)
class Declared:
    """What a vertex has registered so far."""

    states: tuple[StateInfo, ...]
    key_types: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Built:
    """The tasks are ready to run."""

    declared: Mapping[str, Declared]
    begun: Set[str]
    """As in `Run`, of this worker."""


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A subtask's part of a checkpoint is durable."""

    checkpoint: CheckpointId
    subtask: SubtaskId
    state: SubtaskState
    declared: Declared
    parts: Mapping[str, Mapping[str, int]]
    """Which objects the descriptors of the state refer to, and their bytes."""


@dataclass(frozen=True, slots=True)
class Report:
    """Any other method of the checkpoint listener."""

    method: str
    arguments: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to `Call` or `Count`."""

    number: int
    result: Any = None


@dataclass(frozen=True, slots=True)
class Objects:
    """The stored objects of a worker."""

    names: Set[str]
    in_use: Set[str]


@dataclass(frozen=True, slots=True)
class Alive:
    """How the worker is."""

    status: JobStatus


@dataclass(frozen=True, slots=True)
class Exited:
    """A task has ended."""

    subtask: SubtaskId


@dataclass(frozen=True, slots=True)
class Done:
    """All tasks have ended."""

    objects: Objects
    status: JobStatus


@dataclass(frozen=True, slots=True)
class Failed:
    """The worker ends by this error."""

    error: Exception
