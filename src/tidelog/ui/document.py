"""The document behind the page: everything that it shows, and nothing else.

Invariants: a document is a value that becomes JSON as it is, sizes in bytes, durations in seconds
unless a name says otherwise, moments in milliseconds since the epoch; what is not known is null,
never 0. It does not say how it was read, so another engine's checkpoints fit in as well.
"""

from typing import Any, Final, Literal

import msgspec

from tidelog.spark.checkpoint.summary import BatchSummary

VERSION: Final = 1

Kind = Literal["checkpoint", "savepoint", "start", "unreadable"]


class Phases(msgspec.Struct, frozen=True):
    """Where the time of a checkpoint went; they follow one another."""

    start_delay_s: float
    alignment_s: float
    durable_s: float
    manifest_s: float


class CheckpointPoint(msgspec.Struct, frozen=True, kw_only=True):
    """A completed checkpoint on the charts: stored now, seen before, or told by the job."""

    slot: int
    checkpoint_id: int
    generation: int
    at_ms: int
    stored: bool
    """Whether the store still held the checkpoint when it was last read."""
    savepoint: str | None = None
    canonical: bool = False
    """A savepoint whose log holds all rows: no part of the log of changes."""
    unaligned: bool = False
    seconds: float | None = None
    phases: Phases | None = None
    """Only a running job tells them."""
    start_delay_ms: int | None = None
    """The longest of all subtasks, as `alignment_ms`."""
    alignment_ms: int | None = None
    manifest_bytes: int | None = None
    log_bytes: int = 0
    """All log that a restore reads, that within the manifest included."""
    table_bytes: int = 0
    """All files of the materializations."""
    new_log_bytes: int | None = None
    """What the checkpoint before does not hold."""
    new_table_bytes: int | None = None


class SubtaskPart(msgspec.Struct, frozen=True, kw_only=True):
    """What a checkpoint holds of one subtask."""

    index: int
    first_key_group: int
    last_key_group: int
    changes: int
    upto: int
    """Changes below this number are in the table; a restore replays the rest."""
    replay_changes: int
    table_bytes: int
    log_bytes: int
    inline_bytes: int
    in_flight_bytes: int
    descriptor: str | None
    materialized_ms: int | None
    """Of the first known checkpoint that names the table."""
    materialized_before: bool
    """Whether the table may have been uploaded before `materialized_ms`, because no older
    checkpoint is known."""
    watermark_ms: int | None
    end_of_time: bool
    """The watermark is behind all data."""
    finished: bool
    unaligned: bool | None
    start_delay_ms: int | None
    alignment_ms: int | None
    inherited: int
    """Subtasks of earlier shapes whose state it still needs."""


class StatePart(msgspec.Struct, frozen=True):
    """A registered state."""

    name: str
    kind: str
    schema: str
    ttl_ms: int | None


class OperatorPart(msgspec.Struct, frozen=True):
    """What a checkpoint holds of an operator."""

    id: str
    key_groups: int
    states: tuple[StatePart, ...]
    subtasks: tuple[SubtaskPart, ...]


class SlotPart(msgspec.Struct, frozen=True, kw_only=True):
    """A slot of the store."""

    slot: int
    kind: Kind
    manifest_bytes: int
    generation: int | None = None
    checkpoint_id: int | None = None
    created_ms: int | None = None
    job: str | None = None
    name: str | None = None
    savepoint_format: str | None = None
    final: bool = False
    restorable: bool | None = None
    """As far as sizes tell; null where nothing says so."""
    log_bytes: int | None = None
    table_bytes: int | None = None
    operators: tuple[OperatorPart, ...] | None = None
    """Null for a slot that holds none, and for those of which only the totals are told."""
    problem: str | None = None


class Problem(msgspec.Struct, frozen=True):
    """Something that is wrong, and what to do."""

    where: str
    expected: str
    found: str
    action: str
    slots: tuple[int, ...] = ()
    """Checkpoints that cannot be restored because of it."""


class Materialized(msgspec.Struct, frozen=True):
    """The upload of a table, dated by the first known checkpoint that names it."""

    operator: str
    subtask: int
    at_ms: int
    table_bytes: int
    upto: int


class ObjectsRead(msgspec.Struct, frozen=True):
    """Objects of one kind that a restore reads."""

    kind: str
    objects: int | None
    bytes: int


class RestorePart(msgspec.Struct, frozen=True, kw_only=True):
    """What a restore of one checkpoint reads, and what it would take."""

    slot: int
    reads: tuple[ObjectsRead, ...]
    bytes: int
    changes: int
    """To be replayed."""
    seconds: float
    """By the model of `tidelog estimate`, from a started process to running tasks."""
    download_s: float
    replay_s: float
    link_bytes_per_s: float
    link_latency_s: float
    link_requests: int
    replay_per_s: float
    possible: bool | None
    """False when a problem of the checkpoint is known."""


class ObjectsStored(msgspec.Struct, frozen=True):
    """Objects of one kind in the store."""

    kind: str
    objects: int
    bytes: int


class BillLine(msgspec.Struct, frozen=True, kw_only=True):
    """A day at one provider, in its currency."""

    provider: str
    title: str
    region: str
    currency: str
    as_of: str
    storage: float
    requests: float | None
    """Null where nobody counts requests."""
    transfer: float | None
    total: float
    here: bool
    """The store's URL says that it is this provider's."""
    warning: str | None


class RequestsADay(msgspec.Struct, frozen=True):
    """Requests a day at the pace since the job's start."""

    put: float
    list: float
    get: float
    delete: float
    bytes_written: float
    bytes_read: float
    over_s: float
    """Seconds that they were counted for."""


class BillPart(msgspec.Struct, frozen=True):
    """What a day costs."""

    stored: tuple[ObjectsStored, ...]
    at_ms: int
    """When the objects were listed."""
    requests: RequestsADay | None
    lines: tuple[BillLine, ...]


class StateSeries(msgspec.Struct, frozen=True):
    """State and log of a running job over time, one value per sample."""

    at_ms: tuple[int, ...]
    log_bytes: tuple[int | None, ...]
    materialized_bytes: tuple[int | None, ...]
    table_bytes: tuple[int | None, ...]
    queued_bytes: tuple[int | None, ...]
    memory_bytes: tuple[int | None, ...]


class OperatorSeries(msgspec.Struct, frozen=True):
    """An operator between two samples, at the later one's moment; null where it was not seen."""

    id: str
    records_per_s: tuple[float | None, ...]
    busy: tuple[float | None, ...]
    """Share of the time, averaged over the subtasks."""
    backpressured: tuple[float | None, ...]
    late_per_s: tuple[float | None, ...]
    behind_s: tuple[float | None, ...]
    """How far the watermark is behind the clock."""


class TaskNow(msgspec.Struct, frozen=True):
    """A subtask between the last two looks at the job."""

    subtask: int
    busy: float | None
    backpressured: float | None
    input_bytes: int | None
    """Records that wait in its inputs."""
    materialization_lag_s: float | None
    """How long the upload of its table has been due."""


class OperatorNow(msgspec.Struct, frozen=True):
    """An operator between the last two looks at the job; null where there is nothing to go by."""

    id: str
    records_per_s: float | None
    busy: float | None
    backpressured: float | None
    tasks: tuple[TaskNow, ...]
    """Empty where the job's release does not tell them."""


class LivePart(msgspec.Struct, frozen=True):
    """A job that runs: its status as it came, and what was seen of it."""

    pid: int
    at_ms: int
    status: dict[str, Any]
    """`tidelog run --json` has the same fields; readers do without what a release has not."""
    now: tuple[OperatorNow, ...]
    state: StateSeries
    operators: tuple[OperatorSeries, ...]


class Reads(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked of the store for this page so far."""

    lists: int = 0
    gets: int = 0
    bytes: int = 0
    read_ms: int = 0
    """When slots were read last."""
    objects_ms: int = 0
    """When all objects were listed last."""


class StateStorePart(msgspec.Struct, frozen=True, kw_only=True):
    """A state store of a Spark query: its snapshots against its changelogs."""

    operator: int
    partition: int
    name: str
    version: int | None
    snapshots: int
    """Snapshots that are stored."""
    snapshot_version: int | None
    """Version of the newest snapshot."""
    changelogs: int
    changelog_bytes: int
    """Bytes of all stored changelogs."""
    replay_changelogs: int
    replay_bytes: int
    """Bytes of the changelogs after the newest snapshot, which a restart of the query reads."""


class QueryPart(msgspec.Struct, frozen=True, kw_only=True):
    """The checkpoint of a Spark query."""

    id: str | None
    """Spark's id of the query."""
    batches: tuple[BatchSummary, ...]
    """Committed batches, the oldest first."""
    stores: tuple[StateStorePart, ...]
    segments: int
    segment_bytes: int
    roll_ups: int
    live_changelogs: int
    live_bytes: int
    """Bytes of the changelogs in the log that a retained batch needs."""
    expired_changelogs: int
    orphan_segments: int
    orphan_bytes: int
    """Of the segments that no index names."""


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the page shows."""

    version: int = VERSION
    release: str
    url: str
    at_ms: int
    job: str | None
    generation: int | None
    started_ms: int | None
    phase: str
    """What a running job says of itself (see `JobStatus.phase`); without one `finished` or
    `not running here`."""
    notices: tuple[str, ...]
    """What the page cannot show, and why."""
    problems: tuple[Problem, ...]
    live: LivePart | None
    checkpoints: tuple[CheckpointPoint, ...]
    slots: tuple[SlotPart, ...]
    """Slots of the store, the newest first."""
    materialized: tuple[Materialized, ...]
    restore: RestorePart | None
    bill: BillPart | None
    reads: Reads
    query: QueryPart | None = None
    """For the checkpoint of a Spark query, which has no slots and no job."""
