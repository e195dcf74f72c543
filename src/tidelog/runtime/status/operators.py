"""What the operators of a job and their subtasks do."""

from dataclasses import dataclass

from tidelog.metrics import counter, gauge, parts


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
    longest_call_s: float = gauge(
        "longest_call_seconds",
        "The longest time in which one call of the operator's functions let nothing else in the "
        "process go on.",
        watch="Above 0.2 s timers, barriers and other operators wait for it: do less per call.",
        default=0.0,
        across="max",
    )
    tasks: tuple[TaskStatus, ...] = parts("subtask", "subtask")
