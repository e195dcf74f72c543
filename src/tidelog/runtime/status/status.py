"""What a running job looks like at one moment.

Invariant: a status is a value: it belongs to the caller that asked for it and never changes.
Times are seconds, sizes bytes, counters since the start; a distribution is that of the last few
values. The declaration of a field says what it means: docs/reference/metrics.md lists them.
"""

from dataclasses import dataclass, field
from typing import Literal

from tidelog.checkpoint.local_copies import LocalCopiesStatus
from tidelog.ids import Generation
from tidelog.metrics import counter, flag, gauge, parts
from tidelog.runtime.status.checkpoints import CheckpointsStatus, RestoreStatus
from tidelog.runtime.status.distribution import Distribution
from tidelog.runtime.status.storage import (
    MaterializationsStatus,
    StateStatus,
    StoreStatus,
    UploadsStatus,
)

Phase = Literal["starting", "restoring", "running", "ending", "stopped", "finished"]
"""`ending`: it failed or was interrupted, and releases what it has."""


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """One subtask of a vertex."""

    subtask: int
    """Index of the subtask, 0 <= subtask < parallelism."""
    busy_s: float = counter(
        "task_busy_seconds",
        "Time the subtask spent handling records, timers and barriers.",
        watch="One subtask with a far higher rate than its siblings has a hot key; a rate near 1 "
        "is all that one subtask can do.",
    )
    backpressured_s: float = counter(
        "task_backpressured_seconds",
        "Time the subtask had work but waited for room downstream, for the upload of the log, for "
        "memory or for a sink's commit.",
        watch="The subtask after the last one that waits is the bottleneck.",
    )
    input_bytes: int = gauge(
        "task_input_bytes",
        "Memory that the records waiting in the subtask's inputs take.",
        watch="A full input says that the subtask is slower than those that send to it.",
    )
    input_buffers: int = gauge(
        "task_input_buffers",
        "Buffers of records that wait in the subtask's inputs.",
        watch="The same as `task_input_bytes`, independent of the size of records.",
    )
    materialization_lag_s: float | None = gauge(
        "task_materialization_lag_seconds",
        "How long the subtask's materialization has been due.",
        watch="Finds the table that is too large or too slow to upload within the interval.",
        default=None,
        ages="once due",
    )


@dataclass(frozen=True, slots=True)
class OperatorStatus:
    """One vertex: a chain of operators, over all its subtasks."""

    id: str
    source: bool
    parallelism: int
    records_in: int = counter(
        "records_in",
        "Records the operator received; of a source, records it read.",
        watch="The throughput of each operator.",
    )
    records_out: int = counter(
        "records_out",
        "Records the operator sent downstream.",
        watch="How much a filter drops or a flat map multiplies.",
    )
    busy_s: float = counter(
        "busy_seconds",
        "Time the operator's subtasks spent handling records, timers and barriers.",
        watch="Divided by the number of subtasks it is the share of time at work.",
    )
    state_bytes: int = gauge(
        "operator_state_bytes",
        "Size of the operator's tables; 0 once they are closed.",
        watch="Which operator's state grows.",
    )
    backpressured_s: float = counter(
        "backpressured_seconds",
        "Time the operator's subtasks had work but waited for room downstream, for the upload of "
        "the log, for memory or for a sink's commit.",
        watch="The operator after the last one that waits is the bottleneck.",
        default=0.0,
    )
    late_records: int = counter(
        "late_records",
        "Records that event time had passed when they came: dropped, or sent to a side output.",
        watch="A rising rate says that the watermark's delay is too short for the data.",
    )
    unfired_timers: int = counter(
        "unfired_timers",
        "Timers that a function registered at the end of the data, which do not fire.",
        watch="More than 0: what they were to do has to be done when the watermark is 2**63 - 1.",
    )
    watermark_ms: int | None = gauge(
        "watermark_ms",
        "Event time that the operator has reached, in milliseconds since 1970 (UTC); the largest "
        "64-bit integer at the end of the data.",
        watch="How far event time lags the clock: `time() * 1000 - tidelog_watermark_ms`.",
        default=None,
    )
    idle_subtasks: int = gauge(
        "idle_subtasks",
        "Subtasks without data to read, for which event time does not wait.",
        watch="Sources with more subtasks than partitions, or partitions without data.",
    )
    splits: int = gauge(
        "splits",
        "Splits (files, partitions) of a source that are not read to their end.",
        watch="How much of a bounded input is left.",
    )
    idle_splits: int = gauge(
        "idle_splits",
        "Splits that are not read to their end and for which event time does not wait.",
        watch="Partitions that went quiet.",
    )
    unread: int | None = gauge(
        "unread_input",
        "What is known to wait in the splits that the source reads: bytes of files, messages of "
        "topics; absent for other sources.",
        watch="Growth over half an hour: the job is slower than its input comes.",
        default=None,
    )
    skipped_records: int = counter(
        "records_skipped",
        'Records that the source could not read and left out, as `on_error="skip"` or a '
        "dead-letter topic says.",
        watch="Any growth: the input has what the job cannot read, and the output lacks it.",
    )
    event_time_unknown: int | None = gauge(
        "event_time_unknown",
        "1 while an operator that gives records their event times cannot say how far event time "
        "is, because a split had no record yet; absent for other operators.",
        watch="1 while records are read: no window and no timer fires. Set `idle_after_ms`.",
        default=None,
        across="max",
    )
    longest_call_s: float = gauge(
        "longest_call_seconds",
        "The longest time in which one call of the operator's functions blocked the process.",
        watch="Above 0.2 s timers, barriers and other operators wait for it: do less per call.",
        default=0.0,
        across="max",
    )
    longest_standstill_s: float = gauge(
        "longest_standstill_seconds",
        "The longest time since the start in which a subtask of the operator handled no record "
        "although its input had some, the present one included.",
        watch="Above a second readers of the output notice; while it grows the standstill lasts.",
        default=0.0,
        across="max",
    )
    long_standstills: int = counter(
        "long_standstills",
        "Times in which a subtask of the operator handled no record for a second or longer "
        "although its input had some.",
        watch="Any growth in a job that keeps up with its input; the log has them as `standstill`.",
    )
    record_latency_s: Distribution | None = gauge(
        "record_latency_seconds",
        "Time from the reading of a record by the source until this operator, which is the last "
        "one of its path, has taken it; sampled, of the last minute. Time in windows is left out.",
        watch="What the job adds to the age of its output, without the time until a sink commits.",
        default=None,
    )
    keys_apart: str | None = None
    """The types of both streams' keys in a join where no key of one can equal one of the other."""
    tasks: tuple[TaskStatus, ...] = parts("subtask", "subtask")


@dataclass(frozen=True, slots=True)
class MemoryStatus:
    """What the budget is used for; all parts together keep it."""

    budget_bytes: int = gauge(
        "memory_budget_bytes",
        "Memory that the job may use for state, log and records, by its configuration.",
        watch="What `memory_used_bytes` is compared with.",
    )
    rows_bytes: int = gauge(
        "memory_rows_bytes",
        "Estimated memory of the write buffers and row caches of all states.",
        watch="Usually the largest part: rows stay here for reads.",
    )
    log_bytes: int = gauge(
        "memory_log_bytes",
        "Memory of changes on their way to segments, and of segments on their way to the store.",
        watch="Full: see the series of log uploads.",
    )
    files_bytes: int = gauge(
        "memory_files_bytes",
        "Memory of table files on their way to the store.",
        watch="Materializations under way.",
    )
    channels_bytes: int = gauge(
        "memory_channels_bytes",
        "Memory of records on their way between tasks.",
        watch="Full under back-pressure.",
    )
    memtables_bytes: int = gauge(
        "memory_memtables_bytes",
        "Memory of RocksDB's write buffers.",
        watch="Tables that are written faster than the disk takes them.",
    )
    block_cache_bytes: int = gauge(
        "memory_block_cache_bytes",
        "Memory of RocksDB's block cache.",
        watch="Reads that find their blocks in memory.",
    )
    used_bytes: int = gauge(
        "memory_used_bytes",
        "Memory in use of the budget: rows, log, files, channels, memtables and block cache.",
        watch="Near the budget for long: raise `memory`, or expect reads from disk.",
        init=False,
    )

    def __post_init__(self) -> None:
        tables = self.memtables_bytes + self.block_cache_bytes
        moving = self.log_bytes + self.files_bytes + self.channels_bytes
        object.__setattr__(self, "used_bytes", self.rows_bytes + moving + tables)


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """One process of a job with workers."""

    worker: int
    """Number of the worker, from 0: it has the subtasks whose index leaves it as remainder."""
    process: int
    """The process identifier."""
    subtasks: int = gauge(
        "worker_subtasks",
        "Subtasks that the worker runs.",
        watch="0: more workers than the job has subtasks.",
    )
    records_in: int = counter(
        "worker_records_in",
        "Records that the sources in the worker read.",
        watch="A worker far below the others has fewer splits, or slower ones.",
    )
    busy_s: float = counter(
        "worker_busy_seconds",
        "Time the worker's subtasks spent handling records, timers and barriers.",
        watch="A rate near 1 is all that one process can do; one worker far above the others has "
        "a hot key.",
        default=0.0,
    )
    memory_bytes: int = gauge(
        "worker_memory_used_bytes",
        "Memory in use of the worker's part of the budget.",
        watch="Near the budget divided by the number of workers: its keys are more, or larger.",
    )
    silent_s: float = gauge(
        "worker_silent_seconds",
        "Time since the worker last reported; it does so every second.",
        watch="Growing: it hangs, or one call takes long. At `worker_timeout` it counts as lost.",
        default=0.0,
        ages="always",
    )


@dataclass(frozen=True, slots=True)
class JobStatus:
    """A job at one moment."""

    job: str
    phase: Phase = flag(
        "running",
        "1 while the job handles records; 0 while it starts or restores, and after its end.",
        watch="0 for longer than a restore takes: the job does not get going.",
        holds=lambda phase: phase == "running",
        default="starting",
    )
    at_s: float = 0.0
    """When this was taken, on the monotonic clock."""
    age_s: float = gauge(
        "status_age_seconds",
        "Time since the job itself last said how it is, which it does every second.",
        watch="Growing: a call of a function does not return, and blocks the job; the "
        "log names it as `loop_held`.",
        default=0.0,
        ages="always",
    )
    generation: Generation | None = gauge(
        "generation",
        "Number of this start of the job on its store; every start gets a higher one.",
        watch="A change is a restart.",
        default=None,
    )
    operators: tuple[OperatorStatus, ...] = parts("operator", "id")
    workers: tuple[WorkerStatus, ...] = parts("worker", "worker")
    """The processes of a job with workers; none of a job in one process."""
    checkpoints: CheckpointsStatus = field(default_factory=CheckpointsStatus)
    uploads: UploadsStatus = field(default_factory=UploadsStatus)
    materializations: MaterializationsStatus = field(default_factory=MaterializationsStatus)
    state: StateStatus = field(default_factory=StateStatus)
    restore: RestoreStatus | None = None
    dropped_state: tuple[str, ...] = ()
    """What of the restored checkpoint was dropped, as the user allowed."""
    deleted_objects: int = counter(
        "objects_deleted",
        "Stored objects that the job deleted because no retained checkpoint needs them.",
        watch="No growth while checkpoints complete: the store fills up.",
    )
    memory: MemoryStatus = field(default_factory=MemoryStatus)
    local_copies: LocalCopiesStatus | None = None
    """Figures of local recovery; None when it is off."""
    store: StoreStatus | None = None
    """Requests to the store; None for a store that does not count them."""
    records_read: int = counter(
        "records_read",
        "Records that the job's sources read.",
        watch="The throughput of the job.",
        init=False,
    )

    def __post_init__(self) -> None:
        read = sum(operator.records_in for operator in self.operators if operator.source)
        object.__setattr__(self, "records_read", read)

    @property
    def late_records(self) -> int:
        """Records that event time had passed, in all operators."""
        return sum(operator.late_records for operator in self.operators)

    @property
    def longest_standstill_s(self) -> float:
        """The longest time in which a subtask handled no record of its waiting input."""
        return max((operator.longest_standstill_s for operator in self.operators), default=0.0)

    @property
    def record_latency_s(self) -> Distribution | None:
        """How long records take from the source to the end of the slowest path, lately."""
        paths = [o.record_latency_s for o in self.operators if o.record_latency_s is not None]
        return max(paths, key=lambda path: path.p99, default=None)
