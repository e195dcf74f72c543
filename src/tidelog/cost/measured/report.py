"""The report: what was measured of a job's log, and what the formulas predict.

Invariant: a figure that cannot be known from what is retained is None, and a reason next to it says
why and what to do. Times are seconds unless named `_ms`, sizes bytes, rates per second.
"""

from dataclasses import dataclass

from tidelog.cost.measured.intervals import Interval
from tidelog.cost.model.usage import Usage


@dataclass(frozen=True, slots=True)
class Comparison:
    """A prediction, and what was measured."""

    predicted_bytes: float
    measured_bytes: float

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
    """One subtask."""

    subtask: int
    changes_per_s: float | None
    bytes_per_change: BytesPerChange | None
    intervals: tuple[Interval, ...]
    interval_s: float | None
    """Between two materializations, on average."""
    peak: Comparison | None
    """rate x bytes x interval, and the mean of the intervals' fullest logs."""
    highest_peak_bytes: int | None
    missing: str | None
    """Why there is no comparison."""


@dataclass(frozen=True, slots=True)
class WindowReport:
    """The rule for windows: 2 x (slice + timer) rate x bytes x interval.

    A slice is what is stored of windows as one: where they share no slices, a window.
    """

    size_ms: int | None
    """Length of the windows; None when no state and no option says it."""
    slide_ms: int | None
    shared: bool = False
    """Windows share slices, so a record is in one."""
    slices_per_s: float | None = None
    """Slices a second that the last of their windows fired: rows deleted."""
    timers_per_s: float | None = None
    slice_bytes: float | None = None
    """Bytes of a change of a slice's row, as stored."""
    timer_bytes: float | None = None
    """Bytes of a change of a timer, both of its rows, as stored."""
    writes_per_slice: float | None = None
    """Times that a slice's row is written before it is deleted; the rule supposes 1."""
    peak: Comparison | None = None
    missing: str | None = None

    @property
    def windows_per_record(self) -> float | None:
        """Windows that hold one record: size / slide."""
        return self.size_ms / self.slide_ms if self.size_ms and self.slide_ms else None

    @property
    def slices_per_record(self) -> float | None:
        """Slices that keep one record."""
        return 1.0 if self.shared else self.windows_per_record

    @property
    def bytes_per_record(self) -> float | None:
        """Log for a record that opens all of its windows, until they have fired."""
        windows, slices = self.windows_per_record, self.slices_per_record
        if windows is None or slices is None:
            return None
        if self.slice_bytes is None or self.timer_bytes is None:
            return None
        return 2 * (slices * self.slice_bytes + windows * self.timer_bytes)


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
    missing: str | None

    @property
    def log_share(self) -> float | None:
        """Log over table."""
        return self.log_bytes / self.table_bytes if self.table_bytes else None


@dataclass(frozen=True, slots=True)
class Combine:
    """Updates per logged change."""

    factor: float | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class OverheadReport:
    """A job."""

    url: str
    job: str
    engine: str
    checkpoints: int
    first_slot: int
    last_slot: int
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
