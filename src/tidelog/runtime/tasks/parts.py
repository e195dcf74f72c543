"""What a task is made of, what it is called, and whom it reports to."""

from dataclasses import dataclass, field
from typing import Protocol

from tidelog.checkpoint.manifest import SubtaskState
from tidelog.dstl.uploader import Uploader
from tidelog.effects import Effects
from tidelog.ids import CheckpointId
from tidelog.runtime.canonical import CanonicalSnapshotter
from tidelog.runtime.channels.output import Output
from tidelog.runtime.in_flight.carrier import InFlightCarrier
from tidelog.runtime.operators.chain import OperatorChain
from tidelog.runtime.snapshot import Snapshotter
from tidelog.runtime.tasks.alignment import Switching
from tidelog.runtime.tasks.sink_output import SinkOutput
from tidelog.state.backend import KeyedBackend
from tidelog.state.operator_state import OperatorStates


@dataclass(frozen=True, slots=True, order=True)
class TaskId:
    """A subtask of a vertex."""

    vertex: str
    subtask: int

    def __str__(self) -> str:
        return f"{self.vertex}-{self.subtask}"


class CheckpointListener(Protocol):
    """Where tasks report to."""

    def acknowledged(self, checkpoint: CheckpointId, task: TaskId, state: SubtaskState) -> None: ...

    def declined(self, checkpoint: CheckpointId, task: TaskId, reason: str) -> None: ...

    def ended(self, task: TaskId) -> None: ...

    def keep_aligned(self, task: TaskId, reason: str) -> None:
        """In-flight data of this job cannot be stored."""
        ...


@dataclass(slots=True)
class TaskMetrics:
    """Counters since the start."""

    records_in: int = 0


@dataclass(slots=True, eq=False)
class TaskParts:
    """What a task is made of."""

    id: TaskId
    chain: OperatorChain
    backend: KeyedBackend
    snapshotter: Snapshotter
    canonical: CanonicalSnapshotter
    output: Output | SinkOutput
    uploader: Uploader | None
    effects: Effects
    listener: CheckpointListener
    restored: SubtaskState | None = None
    operator_states: OperatorStates = field(default_factory=OperatorStates)
    switching: Switching | None = None
    """None: checkpoints stay aligned."""
    carrier: InFlightCarrier | None = None
    """Stores in-flight data; None exactly when checkpoints stay aligned."""
    metrics: TaskMetrics = field(default_factory=TaskMetrics)
