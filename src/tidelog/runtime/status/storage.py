"""How the state of a running job becomes durable: log, tables, requests, local copies."""

from dataclasses import dataclass

from tidelog.metrics import counter, gauge, part
from tidelog.runtime.status.distribution import Distribution


@dataclass(frozen=True, slots=True)
class UploadsStatus:
    """Upload of the log, one segment per request."""

    requests: int = counter(
        "log_upload_requests",
        "Uploads of log segments, the failed ones included.",
        watch="What the log costs in requests.",
    )
    failures: int = counter(
        "log_upload_failures",
        "Uploads of log segments that failed after all retries; their changes go with the next.",
        watch="Any growth: the checkpoints that needed them failed too.",
    )
    bytes: int = counter(
        "log_upload_bytes",
        "Bytes of log segments uploaded.",
        watch="The bandwidth that the log takes.",
    )
    blocks: int = counter(
        "log_upload_blocks",
        "Blocks of log uploaded; a block is what one step of a flush of one subtask wrote.",
        watch="Divided by the requests: how well changes of subtasks share segments.",
    )
    seconds: float = counter(
        "log_upload_seconds",
        "Time that uploads of log segments took, packing and retries included, added up.",
        watch="Its rate is the number of uploads under way on average.",
        default=0.0,
    )
    largest_bytes: int = gauge(
        "log_largest_segment_bytes",
        "Size of the largest log segment of this start.",
        watch="Whether segments reach the size that is wanted.",
        across="max",
    )
    queued_bytes: int = gauge(
        "log_queued_bytes",
        "Bytes of changes that are not durable yet, segments under way included.",
        watch="Near `log_queue_limit_bytes` writers wait.",
    )
    backpressured_s: float = counter(
        "log_backpressured_seconds",
        "Time that writers waited for room in the upload queue, added up.",
        watch="Any steady growth: the store is slower than the changes come.",
        default=0.0,
    )
    latency_s: Distribution | None = gauge(
        "log_upload_latency_seconds",
        "Durations of the last 1024 successful uploads of segments, packing and retries included.",
        watch="What a checkpoint waits for.",
        default=None,
    )
    segment_bytes: Distribution | None = gauge(
        "log_segment_bytes",
        "Sizes of the last 1024 log segments.",
        watch="Small segments cost requests: raise `upload.linger`.",
        default=None,
    )
    segment_blocks: Distribution | None = gauge(
        "log_segment_blocks",
        "Blocks in each of the last 1024 log segments.",
        watch="How many flushes share a request.",
        default=None,
    )
    limit_bytes: int | None = gauge(
        "log_queue_limit_bytes",
        "Bytes of changes that may wait to become durable before writers wait.",
        watch="What `log_queued_bytes` is compared with.",
        default=None,
    )
    attempts: int | None = counter(
        "log_upload_attempts",
        "Attempts at uploads of log segments, retries and second attempts included.",
        watch="More than the requests: the store answers late.",
        default=None,
    )
    attempts_per_upload: Distribution | None = gauge(
        "log_upload_attempts_per_segment",
        "Attempts that each of the last 1024 uploads of a log segment took.",
        watch="Above 1 uploads are retried, or a second attempt ran with a slow one.",
        default=None,
    )


@dataclass(frozen=True, slots=True)
class RequestsStatus:
    """Requests of one kind to the store: attempts are calls, retries and hedges."""

    calls: int = counter(
        "store_calls",
        "Requests to the store that the job asked for.",
        watch="What the store bills; compare with `tidelog estimate`.",
    )
    attempts: int = counter(
        "store_attempts",
        "Attempts at requests: the requests, their retries and second attempts.",
        watch="How much more is sent than asked for.",
    )
    retries: int = counter(
        "store_retries",
        "Attempts repeated because the one before had no answer.",
        watch="A store that throttles, or a network that fails.",
    )
    hedges: int = counter(
        "store_hedges",
        "Second attempts that were started because the first one was slow.",
        watch="Many: the store is slow, or `retry.hedge_after` is too short.",
    )
    failures: int = counter(
        "store_failures",
        "Requests that were given up after all attempts, or refused.",
        watch="Any growth; the log names the object and the error.",
    )
    seconds: float = counter(
        "store_seconds",
        "Time that requests took, retries included, added up.",
        watch="Its rate is the number of requests under way on average.",
        default=0.0,
    )
    latency_s: Distribution | None = gauge(
        "store_latency_seconds",
        "Durations of the last 1024 requests of each kind, retries included.",
        watch="Whether the store or the job is slow.",
        default=None,
    )


@dataclass(frozen=True, slots=True)
class StoreStatus:
    """All requests to the store."""

    put: RequestsStatus = part("operation")
    create: RequestsStatus = part("operation")
    get: RequestsStatus = part("operation")
    list: RequestsStatus = part("operation")
    head: RequestsStatus = part("operation")
    delete: RequestsStatus = part("operation")
    bytes_written: int = counter(
        "store_bytes_written",
        "Bytes of objects written to the store.",
        watch="The bandwidth to the store: log, tables and manifests together.",
    )
    bytes_read: int = counter(
        "store_bytes_read",
        "Bytes of objects read from the store.",
        watch="Mostly the restore; steady reads otherwise are worth a question.",
    )


@dataclass(frozen=True, slots=True)
class MaterializationsStatus:
    """Uploads of tables."""

    started: int = counter(
        "materializations_started",
        "Materializations (uploads of a subtask's table) started.",
        watch="One per interval and subtask is the plan.",
    )
    completed: int = counter(
        "materializations_completed",
        "Materializations completed.",
        watch="None completed: the log grows, and a restart replays all of it.",
    )
    failed: int = counter(
        "materializations_failed",
        "Materializations that failed; the subtask tries again.",
        watch="Any growth; too many in a row stop the job.",
    )
    seconds: float = counter(
        "materialization_seconds",
        "Time that materializations took, added up.",
        watch="Its rate is the number of materializations under way on average.",
        default=0.0,
    )
    uploaded_bytes: int = counter(
        "materialization_bytes",
        "Bytes of table files uploaded; files that are stored already are not uploaded again.",
        watch="The bandwidth that tables take.",
    )
    last_failure: str | None = None
    duration_s: Distribution | None = gauge(
        "materialization_duration_seconds",
        "Durations of the last 256 materializations of each subtask.",
        watch="Near the interval there is no reserve: raise the interval or the bandwidth.",
        default=None,
    )
    lag_s: float = gauge(
        "materialization_lag_seconds",
        "How long the materialization that is latest has been due, of all subtasks.",
        watch="More than an interval: tables are changed faster than they are uploaded.",
        default=0.0,
        across="max",
        ages="once due",
    )
    missed: int = counter(
        "materialization_intervals_missed",
        "Intervals that passed without the materialization that was due, over all subtasks.",
        watch="Steady growth: restarts take longer than planned.",
    )
    interval_s: float | None = gauge(
        "materialization_interval_seconds",
        "Configured time between two materializations of a subtask; absent when they are off.",
        watch="What the lag is compared with.",
        default=None,
        across="max",
    )


@dataclass(frozen=True, slots=True)
class StateStatus:
    """Where the state is, and what a restore would read."""

    table_bytes: int = gauge(
        "state_bytes",
        "Size of all tables on local disk or in memory.",
        watch="Growth without end: state that no TTL or timer removes.",
    )
    materialized_bytes: int = gauge(
        "materialized_bytes",
        "Size of all files of the last materializations: the tables that a restore reads.",
        watch="What the state takes in the store.",
    )
    log_bytes: int = gauge(
        "log_bytes",
        "Size of the log since the last materializations, what is not uploaded yet included.",
        watch="What a restore reads besides the tables.",
    )
    log_changes: int = gauge(
        "log_changes",
        "Changes in the log since the last materializations.",
        watch="What a restore replays.",
    )
    updates: int = counter(
        "state_updates",
        "Puts, deletes and appends of the operators' states that were flushed.",
        watch="Divided by `state_changes`: how many updates of hot keys become one change.",
    )
    changes: int = counter(
        "state_changes",
        "Changes that became of them in table and log; several updates of a hot key become one.",
        watch="What the log has to carry, besides the positions of sources.",
    )

    @property
    def combine_factor(self) -> float | None:
        """Updates per logged change."""
        return self.updates / self.changes if self.changes else None
