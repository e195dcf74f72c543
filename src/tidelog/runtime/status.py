"""What a running job looks like at one moment.

Invariant: a status is a value: it belongs to whoever asked for it and never changes. Times are
seconds, sizes bytes, counters since the start; a distribution is that of the last few values.
"""

from dataclasses import dataclass
from typing import Literal

from tidelog.checkpoint.sizes import CheckpointSizes
from tidelog.ids import Generation, Slot
from tidelog.runtime.distribution import Distribution

Phase = Literal["starting", "restoring", "running", "stopped", "finished"]


@dataclass(frozen=True, slots=True)
class OperatorStatus:
    """One vertex: a chain of operators, over all its subtasks."""

    id: str
    source: bool
    parallelism: int
    records_in: int
    records_out: int
    busy_s: float
    state_bytes: int
    """Size of the tables; 0 once they are closed."""
    backpressured_s: float = 0.0
    """Time it could have worked but waited for room, or for a sink's commit."""
    late_records: int = 0
    """Dropped: event time had passed them."""


@dataclass(frozen=True, slots=True)
class CheckpointsStatus:
    """The checkpoints of this run."""

    completed: int = 0
    failed: int = 0
    last_duration_s: float | None = None
    p50_s: float | None = None
    p99_s: float | None = None
    manifest_bytes: int = 0
    last_failure: str | None = None
    kept_aligned: str | None = None
    """Why barriers wait for records that they were to overtake."""
    last_slot: Slot | None = None
    """Where a restart resumes."""
    sizes: CheckpointSizes | None = None
    """Of the last one."""
    aligned_edges: tuple[str, ...] = ()
    """Edges on which barriers never overtake, though they do on others."""
    dropped_buffers: int = 0
    """Buffers of records in flight that the restore was told to drop."""


@dataclass(frozen=True, slots=True)
class UploadsStatus:
    """Upload of the log, one segment per request."""

    requests: int = 0
    failures: int = 0
    bytes: int = 0
    blocks: int = 0
    seconds: float = 0.0
    largest_bytes: int = 0
    queued_bytes: int = 0
    backpressured_s: float = 0.0
    """How long writers waited for room in the queue."""
    latency_s: Distribution | None = None
    """Per segment, packing and retries included; of the successful ones."""
    segment_bytes: Distribution | None = None
    segment_blocks: Distribution | None = None
    """Batch sizes: a block is what one flush of one subtask wrote."""


@dataclass(frozen=True, slots=True)
class RequestsStatus:
    """Requests of one kind to the store: attempts are calls, retries and hedges."""

    calls: int
    attempts: int
    retries: int
    hedges: int
    """Second attempts beside a slow first one."""
    failures: int
    """Calls that were given up."""
    seconds: float
    latency_s: Distribution | None
    """Per call, retries included."""


@dataclass(frozen=True, slots=True)
class StoreStatus:
    """All requests to the store."""

    put: RequestsStatus
    create: RequestsStatus
    get: RequestsStatus
    list: RequestsStatus
    head: RequestsStatus
    delete: RequestsStatus
    bytes_written: int
    bytes_read: int


@dataclass(frozen=True, slots=True)
class MaterializationsStatus:
    """Uploads of tables."""

    started: int = 0
    completed: int = 0
    failed: int = 0
    seconds: float = 0.0
    uploaded_bytes: int = 0
    """New files only (incremental)."""
    last_failure: str | None = None
    duration_s: Distribution | None = None


@dataclass(frozen=True, slots=True)
class StateStatus:
    """Where the state is, and what a restore would read."""

    table_bytes: int = 0
    materialized_bytes: int = 0
    """All files of the last materializations (full)."""
    log_bytes: int = 0
    """The log since then, what is not uploaded yet included (full)."""
    log_changes: int = 0
    updates: int = 0
    """Puts, deletes and appends that were flushed ..."""
    changes: int = 0
    """... and the changes that table and log got for them."""

    @property
    def combine_factor(self) -> float | None:
        """Updates per logged change."""
        return self.updates / self.changes if self.changes else None


@dataclass(frozen=True, slots=True)
class RestorePhases:
    """What a restore spent its time on; phases overlap, each counts once for all subtasks."""

    download_s: float
    """Table files fetched, checked, written to the local disk."""
    open_s: float
    """Tables opened; in another parallelism also put together."""
    fetch_log_s: float
    """Log fetched from its segments."""
    replay_s: float
    """Log merged and loaded into the tables."""


@dataclass(frozen=True, slots=True)
class RestoreStatus:
    """The restore at the start of this run."""

    slot: Slot
    fraction: float
    """Between 0 and 1."""
    eta_s: float | None
    """Seconds left, while it runs and there is something to go by."""
    bytes: int
    total_bytes: int
    changes: int
    total_changes: int
    seconds: float | None = None
    """How long it took; None until it is done."""
    phases: RestorePhases | None = None


@dataclass(frozen=True, slots=True)
class LocalCopiesStatus:
    """Copies of stored objects on the local disk."""

    objects: int
    bytes: int
    used: int
    """Reads that a copy answered ..."""
    used_bytes: int
    fetched: int
    """... and reads of segments and table files that went to the store."""
    fetched_bytes: int
    damaged: int
    """Copies that did not pass their check."""
    refused: int
    """Copies not made: the limit is reached, or the disk refused."""
    last_problem: str | None


@dataclass(frozen=True, slots=True)
class JobStatus:
    """A job at one moment."""

    job: str
    phase: Phase
    at_s: float
    """When this was taken, on the monotonic clock."""
    generation: Generation | None
    operators: tuple[OperatorStatus, ...] = ()
    checkpoints: CheckpointsStatus = CheckpointsStatus()
    uploads: UploadsStatus = UploadsStatus()
    materializations: MaterializationsStatus = MaterializationsStatus()
    state: StateStatus = StateStatus()
    restore: RestoreStatus | None = None
    deleted_objects: int = 0
    local_copies: LocalCopiesStatus | None = None
    """None without local recovery."""
    store: StoreStatus | None = None
    """None for a store that counts nothing."""

    @property
    def records_read(self) -> int:
        """Records that sources produced."""
        return sum(operator.records_in for operator in self.operators if operator.source)
