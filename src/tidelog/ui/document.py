"""The document of the page: everything that it shows, and nothing else.

Invariants: its parts are those of the modules that make them, and become JSON as they are: a job's
status and checkpoints as the job answers, those of the store as `tidelog checkpoints` prints them.
Sizes are bytes, durations seconds unless a name says otherwise, moments milliseconds since the
epoch; what is not known is null or missing, never 0.
"""

from typing import Any

import msgspec

from tidelog.checkpoint.finding import Finding
from tidelog.spark.checkpoint.inspection import BatchSummary, LogSummary
from tidelog.ui.costs import BillPart, RestorePart
from tidelog.ui.live import LivePart
from tidelog.ui.stored import SlotPart


class RestoreReads(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked of the store for this page so far."""

    lists: int = 0
    gets: int = 0
    bytes: int = 0
    read_ms: int = 0
    """When checkpoints were read last."""
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
    id: str | None
    """Spark's id of the query."""
    batches: list[BatchSummary]
    """Committed batches, the oldest first."""
    stores: list[StateStorePart]
    log: LogSummary


class Document(msgspec.Struct, frozen=True, kw_only=True):
    version: int = 2
    release: str
    url: str
    at_ms: int
    job: str | None
    generation: int | None = None
    started_ms: int | None = None
    phase: str
    """What a running job says (see `JobStatus.phase`), else `finished` or `not running here`."""
    notices: tuple[str, ...]
    """What the page cannot show, and why."""
    problems: tuple[Finding, ...]
    live: LivePart | None = None
    checkpoints: tuple[dict[str, Any], ...] = ()
    """Those stored now, seen before, or named by the job: the fields of a `CompletedCheckpoint` as
    far as they are known, and whether it is `stored`."""
    retained: tuple[SlotPart, ...] = ()
    """What the store holds, by number, the newest first: starts as well."""
    materialized: tuple[dict[str, Any], ...] = ()
    """Uploads of tables: as `NewTable`, and `at_ms`, when a checkpoint first named the table."""
    restore: RestorePart | None = None
    bill: BillPart | None = None
    reads: RestoreReads
    query: QueryPart | None = None
    """For the checkpoint of a Spark query, which has no job."""
