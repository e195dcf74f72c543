"""The checkpoint of a Spark query as the page shows it: what was read, and the document of it.

Invariants: nothing is written; what is damaged has its place like all else, with what is wrong and
what to do.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from typing import Final

from tidelog.checkpoint.finding import Finding
from tidelog.effects import Clock
from tidelog.errors import ObjectNotFoundError, advised
from tidelog.spark.checkpoint.checkpoint import (
    METADATA,
    QueryCheckpoint,
    StoreSnapshot,
    read_checkpoint,
    require_checkpoint,
)
from tidelog.spark.checkpoint.commits import read_query_id
from tidelog.spark.checkpoint.inspection import (
    check_located,
    stored_bytes,
    summarize_batches,
    summarize_log,
)
from tidelog.spark.checkpoint.liveness import StoreVersions
from tidelog.spark.checkpoint.locate import locate
from tidelog.spark.plugin.check import CheckResult
from tidelog.storage.port import ObjectStore
from tidelog.ui.document import Document, QueryPart, StateStorePart
from tidelog.ui.watch import ON_DEMAND_S, reads_of

READ_S: Final = 60.0
"""The shortest time between two reads: each asks for every retained commit."""
_DAMAGE: Final = ("damage", "lost", "offsets", "restart")
"""Checks whose failure means that batches cannot be read; the others concern settings."""


@dataclass(frozen=True, slots=True)
class QueryView:
    part: QueryPart
    checks: list[CheckResult]
    read_ms: int


async def read_query(store: ObjectStore, clock: Clock) -> QueryView:
    """Read the checkpoint at a store's root: a few lists, and each commit and roll-up.

    Raises ObjectNotFoundError where no query has planned a batch, and what the store raises.
    """
    checkpoint = await read_checkpoint(store)
    require_checkpoint(checkpoint)
    located = await locate(store, checkpoint)
    part = QueryPart(
        id=await _stored_id(store),
        batches=await summarize_batches(store, checkpoint),
        stores=list(_state_stores(checkpoint, located.assessment.stores.values())),
        log=summarize_log(checkpoint, located.assessment),
    )
    return QueryView(part, await check_located(store, checkpoint, located), clock.now_ms())


async def _stored_id(store: ObjectStore) -> str | None:
    """Spark's id of the query; None where its metadata is damaged or gone."""
    try:
        return read_query_id(await store.get(METADATA))
    except (ObjectNotFoundError, ValueError):
        return None


def _state_stores(
    checkpoint: QueryCheckpoint, stores: Iterable[StoreVersions]
) -> Iterator[StateStorePart]:
    for store in sorted(stores, key=lambda store: (store.partition, store.directory)):
        sizes = {name: stored_bytes(entry) for name, entry in store.entries.items()}
        sizes |= {name: checkpoint.changelogs[name] for name in store.files - sizes.keys()}
        committed = _snapshots(checkpoint, store)
        snapshot = max(committed, default=None)
        since = {name: size for name, size in sizes.items() if name.version > (snapshot or 0)}
        operator, partition = store.partition
        yield StateStorePart(
            operator=operator,
            partition=partition,
            name="/".join(store.directory.split("/")[2:]) or "default",
            version=max((name.version for name in sizes), default=snapshot),
            snapshots=len(committed),
            snapshot_version=snapshot,
            changelogs=len(sizes),
            changelog_bytes=sum(sizes.values()),
            replay_changelogs=len(since),
            replay_bytes=sum(since.values()),
        )


def _snapshots(checkpoint: QueryCheckpoint, store: StoreVersions) -> list[int]:
    """Versions with a snapshot, without those that attempts have left which no commit names."""

    def counts(snapshot: StoreSnapshot) -> bool:
        commit = checkpoint.commits.get(snapshot.version - 1)
        if commit is None or snapshot.id is None:
            return True
        return (*store.partition, snapshot.id) in commit.named

    newest = -1 if checkpoint.newest is None else checkpoint.newest
    return [s.version for s in store.snapshots if s.version <= newest + 1 and counts(s)]


def _problems(checks: list[CheckResult]) -> Iterator[Finding]:
    for check in checks:
        if check.verdict == "fail" and check.check in _DAMAGE:
            passed = f"the check `{check.check}` of `tidelog spark check` to pass"
            where = "the checkpoint"
            yield Finding(check.check, where, passed, check.found, action=check.action or "")


def notices(checks: list[CheckResult]) -> Iterator[str]:
    for check in checks:
        if check.verdict != "ok" and not (check.verdict == "fail" and check.check in _DAMAGE):
            yield advised(f"{check.check}: {check.found}", check.action or "")


@dataclass(slots=True)
class QueryWatcher:
    """What is known of one checkpoint; read again when somebody looks and it is time to."""

    store: ObjectStore
    clock: Clock
    _view: QueryView | None = None

    async def look_at_job(self) -> None:
        """A query has no control socket: there is nobody to ask."""

    def due(self, *, on_demand: bool) -> bool:
        """Whether it is time to read the store, or would be on demand."""
        view, least_s = self._view, ON_DEMAND_S if on_demand else READ_S
        # A clock that was set back by an hour says that it is time, too.
        return view is None or abs(self.clock.now_ms() - view.read_ms) >= least_s * 1000

    async def read(self) -> None:
        """Read the store; raises what the store raises."""
        self._view = await read_query(self.store, self.clock)

    def document(self, unread: tuple[Finding, ...]) -> Document:
        """What is known now; `unread` says what is wrong with reading the store."""
        view = self._view
        part, checks = (view.part, view.checks) if view is not None else (None, [])
        read_ms = view.read_ms if view is not None else 0
        return Document(
            release=version("tidelog"),
            url=self.store.url,
            at_ms=self.clock.now_ms(),
            job=f"Spark query {(part and part.id) or ''}".rstrip(),
            phase="checkpoint",
            notices=tuple(notices(checks)),
            problems=(*unread, *_problems(checks)),
            reads=reads_of(read_ms, read_ms, self.store.request_metrics),
            query=part,
        )
