"""The parts of a task, and the port for its reports on checkpoints."""

from dataclasses import dataclass, field
from typing import Protocol

from tidelog.changelog.uploader import Uploader
from tidelog.checkpoint.manifest import SubtaskState
from tidelog.effects import Effects
from tidelog.ids import CheckpointId, SubtaskId
from tidelog.runtime.channels.output import Output
from tidelog.runtime.in_flight.carrier import InFlightCarrier
from tidelog.runtime.operators.chain import OperatorChain
from tidelog.runtime.snapshots.canonical import CanonicalSnapshotter
from tidelog.runtime.snapshots.snapshotter import Snapshotter
from tidelog.runtime.tasks.alignment import Switching
from tidelog.runtime.tasks.sink_output import SinkOutput
from tidelog.state.backend import KeyedBackend
from tidelog.state.operator_state import OperatorStates


class CheckpointListener(Protocol):
    """What tasks report to: the checkpoint driver."""

    def acknowledged(
        self, checkpoint: CheckpointId, task: SubtaskId, state: SubtaskState
    ) -> None: ...

    def declined(self, checkpoint: CheckpointId, reason: str) -> None:
        """A task cannot take part; `reason` names the task."""
        ...

    def ended(self, task: SubtaskId) -> None: ...

    def keep_aligned(self, reason: str) -> None:
        """In-flight data of this job cannot be stored."""
        ...


@dataclass(slots=True)
class TaskMetrics:
    """Counters of one task since the start."""

    records_in: int = 0


@dataclass(slots=True, eq=False)
class TaskParts:
    """The parts of a task, made before it runs."""

    id: SubtaskId
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
    """When barriers overtake; None when checkpoints stay aligned."""
    carrier: InFlightCarrier | None = None
    """Stores in-flight data; None exactly when checkpoints stay aligned."""
    metrics: TaskMetrics = field(default_factory=TaskMetrics)
