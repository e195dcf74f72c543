"""What a checkpoint needs: the changelogs that a retained batch cannot do without.

Invariants: a pure function of what was read. A store's floor is the newest snapshot from which the
oldest retained batch can be restored, or the oldest one there is; where changelogs after it are
gone, the next one of a batch whose state Spark may have cleaned up. Changelogs below the floor are
expired, as they are for Spark's own maintenance, all others are live. What is live is found in one
of the places a reader looks in, or it is lost.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from tidelog.spark.checkpoint.checkpoint import (
    Entries,
    QueryCheckpoint,
    StoreSnapshot,
    segment_object,
)
from tidelog.spark.format.index import IndexEntry, segments_of
from tidelog.spark.format.names import ChangelogName

KEPT_LONGER: Final = 2
"""So many of the oldest retained batches may have lost state to Spark's clean-up: it keeps the
state of the newest minBatchesToRetain batches and the commits of one more, and their purge runs
during the next batch."""


@dataclass(frozen=True, slots=True)
class Lost:
    """Something needed that is nowhere."""

    what: str
    """The changelog, as a reader would name it."""
    batch: int
    """The batch that wrote it."""


@dataclass(frozen=True, slots=True)
class StoreVersions:
    """One state store, and the versions of it that can be read."""

    directory: str
    entries: dict[ChangelogName, IndexEntry] = field(default_factory=dict)
    files: set[ChangelogName] = field(default_factory=set)
    snapshots: list[StoreSnapshot] = field(default_factory=list)
    floor: int = 0
    """Version of the snapshot that the oldest retained batch is restored from; 0: none."""

    @property
    def partition(self) -> tuple[int, int]:
        return _partition_of(self.directory)


@dataclass(frozen=True, slots=True)
class Assessment:
    """Which of a checkpoint's changelogs are needed, and where they are."""

    stores: Mapping[str, StoreVersions]
    live: tuple[IndexEntry, ...]
    """Virtual changelogs that a retained batch needs, sorted by name."""
    expired: int
    """Number of indexed changelogs that none needs."""
    lost: tuple[Lost, ...]

    def live_segments(self) -> set[str]:
        """Segments that hold something live."""
        return segments_of(self.live)


def assess(checkpoint: QueryCheckpoint, entries: Entries) -> Assessment:
    """Decide what is live, given the virtual changelogs that are known."""
    committed = _committed(checkpoint, entries)
    oldest = min(checkpoint.retained or checkpoint.offsets, default=0) + 1
    stores = {
        store.directory: replace(store, floor=_floor(store, checkpoint, committed, oldest))
        for store in _stores(checkpoint, entries)
    }
    needed = [entry for n, entry in entries.items() if n.version >= stores[n.directory].floor]
    live: list[IndexEntry] = []
    lost: list[Lost] = []
    for entry in needed:
        name = entry.name
        if not (missing_segments := _missing_segments(checkpoint, entry)):
            live.append(entry)
        elif name not in checkpoint.changelogs:
            segments = ", ".join(map(segment_object, missing_segments))
            lost.append(Lost(f"state/{name.path} in {segments}", name.version - 1))
    for store in stores.values():
        lost += _gaps(store, checkpoint, oldest)
    lost += _unresolved(checkpoint, stores.values(), entries)
    return Assessment(
        stores=stores,
        live=tuple(sorted(live, key=lambda entry: entry.name.sort_key)),
        expired=len(entries) - len(needed),
        lost=tuple(dict.fromkeys(lost)),
    )


def _missing_segments(checkpoint: QueryCheckpoint, entry: IndexEntry) -> list[str]:
    present = checkpoint.segment_bytes
    return list(dict.fromkeys(p.segment for p in entry.pieces if p.segment not in present))


def _partition_of(directory: str) -> tuple[int, int]:
    operator, partition = directory.split("/")[:2]
    return int(operator), int(partition)


Committed = Mapping[tuple[int, int, int], set[str]]
"""Ids known to be committed, by operator, partition and version."""


def _committed(checkpoint: QueryCheckpoint, names: Iterable[ChangelogName]) -> Committed:
    ids: dict[tuple[int, int, int], set[str]] = defaultdict(set)
    for name in names:
        ids[name.operator, name.partition, name.version].add(name.id)
    for commit in checkpoint.commits.values():
        for id_ in commit.ids:
            ids[id_.operator, id_.partition, commit.batch + 1].add(id_.id)
    return ids


def _stores(checkpoint: QueryCheckpoint, entries: Entries) -> Iterable[StoreVersions]:
    stores: dict[str, StoreVersions] = {}

    def store(directory: str) -> StoreVersions:
        return stores.setdefault(directory, StoreVersions(directory))

    for name, entry in entries.items():
        store(name.directory).entries[name] = entry
    for name in checkpoint.changelogs:
        store(name.directory).files.add(name)
    for snapshot in checkpoint.snapshots:
        store(snapshot.directory).snapshots.append(snapshot)
    return stores.values()


def _floor(
    store: StoreVersions, checkpoint: QueryCheckpoint, committed: Committed, oldest: int
) -> int:
    """Version of the snapshot that the oldest restorable batch starts from; 0: none."""
    versions = sorted(s.version for s in store.snapshots if _is_usable(s, committed))
    start = max((version for version in versions if version <= oldest), default=0)
    if versions and not start and not any(n.version == 1 for n in (*store.entries, *store.files)):
        start = versions[0]
    reach = oldest + KEPT_LONGER if oldest > 1 else oldest
    # An index names changelogs for some time after their segments were cleaned up. That is no loss
    # while no batch misses them whose state Spark keeps.
    newest_lost = -1
    for name, entry in store.entries.items():
        in_reach = start <= name.version <= reach
        if in_reach and name not in store.files and _missing_segments(checkpoint, entry):
            newest_lost = max(newest_lost, name.version)
    if start <= newest_lost:
        for version in versions:
            if oldest < version <= reach and version > newest_lost:
                return version
    return start


def _is_usable(snapshot: StoreSnapshot, committed: Committed) -> bool:
    """Whether a snapshot is of a committed version: others are of failed attempts."""
    ids = committed.get((*_partition_of(snapshot.directory), snapshot.version))
    return snapshot.id is None or not ids or snapshot.id in ids


def _gaps(store: StoreVersions, checkpoint: QueryCheckpoint, oldest: int) -> list[Lost]:
    """Versions between the floor and the oldest retained batch that are nowhere.

    Later ones stand in commits, by their ids. A store that the oldest commit does not name had no
    part in its batch; without entries it is Spark's alone.
    """
    commit = checkpoint.commits.get(oldest - 1)
    if not store.entries or commit is None or store.partition not in commit.partitions:
        return []
    present = {name.version for name in (*store.entries, *store.files)}
    return [
        Lost(f"state/{store.directory}/{version}_*.changelog", version - 1)
        for version in range(store.floor + 1, oldest)
        if version not in present
    ]


def _unresolved(
    checkpoint: QueryCheckpoint, stores: Iterable[StoreVersions], entries: Entries
) -> list[Lost]:
    """Ids that retained commits name, that are not expired, and that nothing has."""
    resolved = {(name.operator, name.partition, name.id) for name in entries}
    floors: dict[tuple[int, int], int] = {}
    for store in stores:
        resolved |= {(*store.partition, name.id) for name in store.files}
        resolved |= {(*store.partition, s.id) for s in store.snapshots if s.id is not None}
        floors[store.partition] = min(floors.get(store.partition, store.floor), store.floor)
    lost: list[Lost] = []
    for commit in checkpoint.retained.values():
        version = commit.batch + 1
        for n in commit.ids:
            if n not in resolved and version >= floors.get((n.operator, n.partition), 0):
                name = f"state/{n.operator}/{n.partition}/{version}_{n.id}.changelog"
                lost.append(Lost(name, commit.batch))
    return lost
