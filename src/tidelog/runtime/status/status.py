"""What a running job looks like at one moment.

Invariant: a status is a value: it belongs to whoever asked for it and never changes. Times are
seconds, sizes bytes, counters since the start; a distribution is that of the last few values.
"""

from dataclasses import dataclass, field
from typing import Literal

from tidelog.checkpoint.sizes import CheckpointSizes
from tidelog.ids import Generation, Slot
from tidelog.runtime.status.distribution import Distribution


@dataclass(frozen=True, slots=True)
class Metric:
    """What Prometheus calls a field: name without `tidelog_`, and help text."""

    kind: Literal["counter", "gauge", "gauges"]
    """A counter only grows; "gauges": the value's fields, with `name` before their names."""
    name: str
    text: str


def counter(name: str, text: str) -> dict[str, Metric]:
    """Metadata of a field that only grows."""
    return {"metric": Metric("counter", name, text)}


def gauge(name: str, text: str) -> dict[str, Metric]:
    """Metadata of a number, or of a distribution: one sample per statistic."""
    return {"metric": Metric("gauge", name, text)}


def gauges(prefix: str, text: str) -> dict[str, Metric]:
    """Metadata of a value all of whose fields are gauges."""
    return {"metric": Metric("gauges", prefix, text)}


Phase = Literal["starting", "restoring", "running", "stopped", "finished"]


@dataclass(frozen=True, slots=True)
class OperatorStatus:
    """One vertex: a chain of operators, over all its subtasks."""

    id: str
    source: bool
    parallelism: int
    records_in: int = field(metadata=counter("records_in", "Records received"))
    records_out: int = field(metadata=counter("records_out", "Records sent"))
    busy_s: float = field(metadata=counter("busy_seconds", "Time at work"))
    state_bytes: int = field(metadata=gauge("operator_state_bytes", "Tables"))
    """Size of the tables; 0 once they are closed."""
    backpressured_s: float = field(
        default=0.0, metadata=counter("backpressured_seconds", "Time waited for others")
    )
    """Time it could have worked but waited for room, or for a sink's commit."""
    late_records: int = field(
        default=0, metadata=counter("late_records", "Records that event time had passed")
    )
    """Event time had passed them: dropped, or sent to a side output."""
    watermark_ms: int | None = field(
        default=None, metadata=gauge("watermark_ms", "Event time in milliseconds")
    )
    """How far event time is behind it, over the subtasks that are not idle; None: not known."""
    idle_subtasks: int = field(
        default=0, metadata=gauge("idle_subtasks", "Subtasks that event time does not wait for")
    )
    """Subtasks without data to read: event time does not wait for them."""
    splits: int = field(default=0, metadata=gauge("splits", "Splits not read to their end"))
    """Splits of a source that are not read to their end."""
    idle_splits: int = field(
        default=0, metadata=gauge("idle_splits", "Splits that event time does not wait for")
    )
    """Splits among `splits` that event time does not wait for."""
    longest_call_s: float = field(
        default=0.0,
        metadata=gauge("longest_call_seconds", "Longest call that let nothing else go on"),
    )
    """The longest time in which a function of it let nothing else in the process go on."""


@dataclass(frozen=True, slots=True)
class CheckpointsStatus:
    """The checkpoints of this run."""

    completed: int = field(
        default=0, metadata=counter("checkpoints_completed", "Completed checkpoints")
    )
    failed: int = field(default=0, metadata=counter("checkpoints_failed", "Failed checkpoints"))
    last_duration_s: float | None = field(
        default=None, metadata=gauge("checkpoint_last_seconds", "Duration of the last one")
    )
    p50_s: float | None = field(
        default=None, metadata=gauge("checkpoint_p50_seconds", "Median duration")
    )
    p99_s: float | None = field(
        default=None, metadata=gauge("checkpoint_p99_seconds", "99th percentile")
    )
    manifest_bytes: int = field(
        default=0, metadata=gauge("checkpoint_manifest_bytes", "Last manifest")
    )
    last_failure: str | None = None
    kept_aligned: str | None = None
    """Why barriers wait for records that they were to overtake."""
    last_slot: Slot | None = None
    """Where a restart resumes."""
    sizes: CheckpointSizes | None = field(
        default=None, metadata=gauges("checkpoint_", "Last checkpoint")
    )
    """Sizes of the last completed checkpoint."""
    aligned_edges: tuple[str, ...] = ()
    """Edges on which barriers never overtake, though they do on others."""
    dropped_buffers: int = 0
    """Buffers of records in flight that the restore was told to drop."""


@dataclass(frozen=True, slots=True)
class UploadsStatus:
    """Upload of the log, one segment per request."""

    requests: int = field(
        default=0, metadata=counter("log_upload_requests", "Uploads of log segments")
    )
    failures: int = field(
        default=0, metadata=counter("log_upload_failures", "Failed uploads of log segments")
    )
    bytes: int = field(default=0, metadata=counter("log_upload_bytes", "Bytes of log uploaded"))
    blocks: int = field(default=0, metadata=counter("log_upload_blocks", "Blocks of log uploaded"))
    seconds: float = field(
        default=0.0, metadata=counter("log_upload_seconds", "Time of log uploads")
    )
    largest_bytes: int = field(
        default=0, metadata=gauge("log_largest_segment_bytes", "Largest segment")
    )
    queued_bytes: int = field(
        default=0, metadata=gauge("log_queued_bytes", "Log waiting for its upload")
    )
    backpressured_s: float = field(
        default=0.0, metadata=counter("log_backpressured_seconds", "Writers' wait for the queue")
    )
    """How long writers waited for room in the queue."""
    latency_s: Distribution | None = field(
        default=None, metadata=gauge("log_upload_latency_seconds", "Uploads of segments")
    )
    """Per segment, packing and retries included; of the successful ones."""
    segment_bytes: Distribution | None = field(
        default=None, metadata=gauge("log_segment_bytes", "Segments")
    )
    segment_blocks: Distribution | None = field(
        default=None, metadata=gauge("log_segment_blocks", "Blocks per segment")
    )
    """Batch sizes: a block is what one step of a flush of one subtask wrote."""


@dataclass(frozen=True, slots=True)
class RequestsStatus:
    """Requests of one kind to the store: attempts are calls, retries and hedges."""

    calls: int = field(metadata=counter("store_calls", "Requests to the store"))
    attempts: int = field(metadata=counter("store_attempts", "Attempts at them"))
    retries: int = field(metadata=counter("store_retries", "Repeated attempts"))
    hedges: int = field(metadata=counter("store_hedges", "Second attempts beside a slow one"))
    """Second attempts beside a slow first one."""
    failures: int = field(metadata=counter("store_failures", "Requests given up"))
    """Calls that were given up."""
    seconds: float = field(metadata=counter("store_seconds", "Time of requests"))
    latency_s: Distribution | None = field(metadata=gauge("store_latency_seconds", "Last requests"))
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
    bytes_written: int = field(metadata=counter("store_bytes_written", "Payload"))
    bytes_read: int = field(metadata=counter("store_bytes_read", "Payload"))


@dataclass(frozen=True, slots=True)
class MaterializationsStatus:
    """Uploads of tables."""

    started: int = field(
        default=0, metadata=counter("materializations_started", "Materializations started")
    )
    completed: int = field(
        default=0, metadata=counter("materializations_completed", "Completed materializations")
    )
    failed: int = field(
        default=0, metadata=counter("materializations_failed", "Failed materializations")
    )
    seconds: float = field(
        default=0.0, metadata=counter("materialization_seconds", "Time of materializations")
    )
    uploaded_bytes: int = field(
        default=0, metadata=counter("materialization_bytes", "Bytes uploaded by them")
    )
    """New files only (incremental)."""
    last_failure: str | None = None
    duration_s: Distribution | None = field(
        default=None, metadata=gauge("materialization_duration_seconds", "Materializations")
    )
    lag_s: float = field(
        default=0.0, metadata=gauge("materialization_lag_seconds", "Since the latest one was due")
    )
    """How long the one that is latest has been due."""
    missed: int = field(
        default=0,
        metadata=counter("materialization_intervals_missed", "Intervals without the one due"),
    )
    """Intervals that passed without the materialization that was due, over all subtasks."""


@dataclass(frozen=True, slots=True)
class StateStatus:
    """Where the state is, and what a restore would read."""

    table_bytes: int = field(default=0, metadata=gauge("state_bytes", "Size of all tables"))
    materialized_bytes: int = field(
        default=0, metadata=gauge("materialized_bytes", "Last materializations, all files")
    )
    """All files of the last materializations (full)."""
    log_bytes: int = field(
        default=0, metadata=gauge("log_bytes", "Log since the last materializations")
    )
    """The log since then, what is not uploaded yet included (full)."""
    log_changes: int = field(default=0, metadata=gauge("log_changes", "Changes in that log"))
    updates: int = field(default=0, metadata=counter("state_updates", "Puts, deletes and appends"))
    """Puts, deletes and appends that were flushed."""
    changes: int = field(default=0, metadata=counter("state_changes", "Changes of state logged"))
    """Changes that table and log got for `updates`."""

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
    fraction: float = field(metadata=gauge("restore_fraction", "Restored share"))
    """Between 0 and 1."""
    eta_s: float | None
    """Seconds left, while it runs and there is something to go by."""
    bytes: int = field(metadata=gauge("restore_bytes", "Bytes read by the restore"))
    total_bytes: int
    changes: int = field(metadata=gauge("restore_changes", "Changes replayed"))
    total_changes: int
    seconds: float | None = field(
        default=None, metadata=gauge("restore_seconds", "How long it took")
    )
    """Seconds the restore took; None until it is done."""
    phases: RestorePhases | None = None


@dataclass(frozen=True, slots=True)
class LocalCopiesStatus:
    """Copies of stored objects on the local disk."""

    objects: int
    bytes: int
    used: int
    """Reads that a copy answered."""
    used_bytes: int
    fetched: int
    """Reads of segments and table files that went to the store."""
    fetched_bytes: int
    damaged: int
    """Copies that did not pass their check."""
    refused: int
    """Copies not made: the limit is reached, or the disk refused."""
    last_problem: str | None


@dataclass(frozen=True, slots=True)
class MemoryStatus:
    """What the budget is used for; all parts together keep it."""

    budget_bytes: int = 0
    rows_bytes: int = 0
    """Write buffers and row caches of all states, estimated."""
    log_bytes: int = 0
    """Changes on their way to segments, and these on their way to the store."""
    files_bytes: int = 0
    """Table files on their way to the store."""
    channels_bytes: int = 0
    """Records on their way between tasks."""
    memtables_bytes: int = 0
    block_cache_bytes: int = 0

    @property
    def used_bytes(self) -> int:
        """Bytes of all parts together."""
        tables = self.memtables_bytes + self.block_cache_bytes
        moving = self.log_bytes + self.files_bytes + self.channels_bytes
        return self.rows_bytes + moving + tables


@dataclass(frozen=True, slots=True)
class JobStatus:
    """A job at one moment."""

    job: str
    phase: Phase
    at_s: float
    """When this was taken, on the monotonic clock."""
    generation: Generation | None = field(
        metadata=gauge("generation", "Number of this incarnation")
    )
    operators: tuple[OperatorStatus, ...] = ()
    checkpoints: CheckpointsStatus = CheckpointsStatus()
    uploads: UploadsStatus = UploadsStatus()
    materializations: MaterializationsStatus = MaterializationsStatus()
    state: StateStatus = StateStatus()
    restore: RestoreStatus | None = None
    dropped_state: tuple[str, ...] = ()
    """What of the restored checkpoint was dropped, as the user allowed."""
    deleted_objects: int = field(
        default=0, metadata=counter("objects_deleted", "Stored objects deleted")
    )
    memory: MemoryStatus = field(
        default=MemoryStatus(), metadata=gauges("memory_", "Memory of the job")
    )
    local_copies: LocalCopiesStatus | None = None
    """Figures of local recovery; None when it is off."""
    store: StoreStatus | None = None
    """Requests to the store; None for a store that does not count them."""

    @property
    def late_records(self) -> int:
        """Records that event time had passed, in all operators."""
        return sum(operator.late_records for operator in self.operators)

    @property
    def records_read(self) -> int:
        """Records that sources produced."""
        return sum(operator.records_in for operator in self.operators if operator.source)
