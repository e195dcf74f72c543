"""What the parent and the workers of a job say to each other.

Invariant: the parent decides, workers report; workers send each other records, and nothing else.
"""

from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any

import msgspec

from tidelog.checkpoint.manifest import Author, StateInfo, SubtaskState
from tidelog.checkpoint.startup import History
from tidelog.ids import CheckpointId, SubtaskId
from tidelog.runtime.restore.choose import Resumption
from tidelog.runtime.status.status import JobStatus

# --- from the parent


class Restore(msgspec.Struct, frozen=True):
    """Restore the subtasks of the worker."""

    author: Author
    history: History
    resumption: Resumption
    """Without the store that it is from, which a worker opens itself."""
    from_origin: bool
    directory: Path
    """Where the worker has its own directory."""
    drop_in_flight: bool
    """As in the configuration; a start that goes on after another one drops nothing."""


class Build(msgspec.Struct, frozen=True):
    """No newer start is there: user functions and sinks may be opened."""


class Run(msgspec.Struct, frozen=True):
    """All workers are ready."""

    resumed_sources: Set[str]
    """Sources of which an earlier run has begun splits."""


class Call(msgspec.Struct, frozen=True):
    """Call a method of a task."""

    subtask: SubtaskId
    method: str
    arguments: tuple[Any, ...] = ()
    reply: int | None = None
    """The number of the `Reply` when the method has ended; None: none is awaited."""


class CadenceCall(msgspec.Struct, frozen=True):
    """What the cadence of checkpoints is told, by method."""

    method: str
    argument: Any


class Ahead(msgspec.Struct, frozen=True):
    """How far event time is in splits, by source: from a worker about its own, to all others."""

    watermarks: Mapping[str, float]


class ListObjects(msgspec.Struct, frozen=True):
    """List the objects of the worker."""

    reply: int


class UploadAgain(msgspec.Struct, frozen=True):
    """Upload these objects again, which the store has lost, as far as the worker refers to them."""

    reply: int
    lost: Set[str]


class Close(msgspec.Struct, frozen=True):
    """Close everything and end."""


# --- from a worker


class SubtasksRestored(msgspec.Struct, frozen=True):
    """The subtasks are restored."""


class Registered(msgspec.Struct, frozen=True):
    """What a vertex has registered so far."""

    states: tuple[StateInfo, ...]
    key_types: tuple[str, ...]


class Built(msgspec.Struct, frozen=True):
    """The tasks are ready to run."""

    declared: Mapping[str, Registered]
    resumed_sources: Set[str]
    """As in `Run`, of this worker."""


class Acknowledged(msgspec.Struct, frozen=True):
    """A subtask's part of a checkpoint is durable."""

    checkpoint: CheckpointId
    subtask: SubtaskId
    state: SubtaskState
    declared: Registered
    parts: Mapping[str, Mapping[str, int]]
    """Which objects the descriptors of the state refer to, and their bytes."""


class Report(msgspec.Struct, frozen=True):
    """Any other method of the checkpoint listener."""

    method: str
    arguments: tuple[Any, ...]


class Reply(msgspec.Struct, frozen=True):
    """The answer to `Call`, `ListObjects` or `UploadAgain`."""

    number: int
    result: Any = None


class WorkerObjects(msgspec.Struct, frozen=True):
    """The stored objects of a worker."""

    names: Set[str]
    """Objects that the worker has written since its last answer to `ListObjects`."""
    in_use: Set[str]
    """Objects that its next checkpoints may refer to."""


class Alive(msgspec.Struct, frozen=True):
    """How the worker is."""

    status: JobStatus


class Exited(msgspec.Struct, frozen=True):
    """A task has ended."""

    subtask: SubtaskId


class TasksEnded(msgspec.Struct, frozen=True):
    """All tasks have ended."""

    objects: WorkerObjects
    status: JobStatus


class WorkerFailed(msgspec.Struct, frozen=True):
    """The worker ends by this error."""

    error: Exception
