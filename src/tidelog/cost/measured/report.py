"""The report: what was measured of a job's log, and what the formulas predict.

Invariant: a figure that cannot be known from what is retained is None, and a reason next to it says
why and what to do. Times are seconds unless named `_ms`, sizes bytes, rates per second.
"""

from dataclasses import dataclass

from tidelog.cost.measured.facts import MeasuredInterval
from tidelog.cost.model.usage import Usage


@dataclass(frozen=True, slots=True)
class Comparison:
    """A prediction, and what was measured."""

    predicted_bytes: float
    measured_bytes: float

    def __add__(self, other: "Comparison") -> "Comparison":
        predicted = self.predicted_bytes + other.predicted_bytes
        return Comparison(predicted, self.measured_bytes + other.measured_bytes)

    @property
    def ratio(self) -> float | None:
        """Predicted over measured; None when nothing was measured."""
        return self.predicted_bytes / self.measured_bytes if self.measured_bytes else None


@dataclass(frozen=True, slots=True)
class BytesPerChange:
    """What a change takes in the log, headers of blocks and descriptions of states included."""

    raw: float
    """Bytes before compression."""
    stored: float


@dataclass(frozen=True, slots=True)
class SubtaskReport:
    subtask: int
    changes_per_s: float | None
    bytes_per_change: BytesPerChange | None
    intervals: tuple[MeasuredInterval, ...]
    interval_s: float | None
    """Between two materializations, on average."""
    peak: Comparison | None
    """rate x bytes x interval, and the mean of the intervals' fullest logs."""
    highest_peak_bytes: int | None
    missing: str | None
    """Why there is no comparison."""


@dataclass(frozen=True, slots=True)
class WindowReport:
    """The rule for windows: 2 x (slice + timer) rate x bytes x interval."""

    deletes_per_s: float
    """Rows of slices and timers deleted a second."""
    writes_per_row: float
    """Times that a row is written before it is deleted; the rule supposes 1."""
    peak: Comparison


@dataclass(frozen=True, slots=True)
class OperatorReport:
    """One operator: sums over its subtasks, means over time."""

    id: str
    subtasks: tuple[SubtaskReport, ...]
    changes_per_s: float | None
    bytes_per_change: BytesPerChange | None
    interval_s: float | None
    compared: int
    """Subtasks that the comparison is about."""
    peak: Comparison | None
    """Sums over these subtasks, each at its own fullest moment."""
    log_bytes: float
    """Log in a retained checkpoint, on average."""
    most_log_bytes: int
    """Log in the retained checkpoint that has most."""
    table_bytes: float
    """Materializations in a retained checkpoint, on average."""
    windows: WindowReport | None
    """None without windows, and before one has fired."""
    missing: str | None

    @property
    def log_share(self) -> float | None:
        return self.log_bytes / self.table_bytes if self.table_bytes else None


@dataclass(frozen=True, slots=True)
class Combine:
    """Updates per logged change."""

    factor: float | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class OverheadReport:
    url: str
    job: str
    engine: str
    checkpoints: int
    first_checkpoint: int
    last_checkpoint: int
    seconds: float
    """Time that the retained checkpoints cover without a gap."""
    checkpoint_s: float | None
    """Between two checkpoints, on average."""
    operators: tuple[OperatorReport, ...]
    combine: Combine
    stored_bytes: int
    """Bytes of all objects."""
    table_bytes: int
    """Bytes of the newest checkpoint's materializations."""
    usage: Usage | None
    """Log and manifests as objects; None without a time to divide by."""
    notes: tuple[str, ...]

    @property
    def space_amplification(self) -> float | None:
        """All that is stored over the tables of the newest checkpoint."""
        return self.stored_bytes / self.table_bytes if self.table_bytes else None

    @property
    def compared(self) -> bool:
        """Some operator's peak could be measured and predicted."""
        return any(operator.peak is not None for operator in self.operators)
