"""What there is to verify in the checkpoint of a Spark query: the units of its state stores, of its
segments, and of the commits and offsets of its batches.

Invariant: every id that the commit of a retained batch names belongs to a state store that is
checked, or a finding says that it is nowhere, or it lies below what Spark keeps.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from tidelog.checkpoint.finding import UNREADABLE
from tidelog.checkpoint.invariants import Invariant
from tidelog.concurrency import Progress, gather_bounded
from tidelog.engines import Unit, Workspace
from tidelog.errors import ObjectNotFoundError, RestoreError
from tidelog.spark.checkpoint.checkpoint import (
    COMMITS,
    INDEX,
    METADATA,
    OFFSETS,
    SOURCES,
    STATE,
    Homes,
    QueryCheckpoint,
    homes_of,
    is_sidecar,
    key_of,
    listed_batches,
    read_checkpoint,
    segment_object,
    sidecar,
)
from tidelog.spark.checkpoint.commits import read_offsets
from tidelog.spark.checkpoint.liveness import KEPT_LONGER
from tidelog.spark.checkpoint.loading import Version
from tidelog.spark.checkpoint.locate import Located, locate
from tidelog.spark.checkpoint.restart import Restart, read_restart
from tidelog.spark.format.index import IndexEntry
from tidelog.spark.format.names import BATCHES_PER_ROLL_UP
from tidelog.storage.port import ObjectStore
from tidelog.verify.query.files import CheckedFiles
from tidelog.verify.query.state_store import StateStoreUnit
from tidelog.verify.query.structure import Listed, first_sight, obstacles
from tidelog.verify.results import (
    NO_OBJECT,
    Choice,
    Settled,
    UnitResult,
    WorkUnits,
    choose,
    finding_of,
)
from tidelog.verify.segments import SegmentUnit, check_query_segment


async def read_query(
    store: ObjectStore, chosen: Choice, workers: int, progress: Progress
) -> WorkUnits:
    """The work on the chosen batches; raises as `verification.verify`."""
    checkpoint = await read_checkpoint(store, progress)
    restart = await read_restart(store, checkpoint, None)
    retained = _retained(checkpoint, restart)
    # A commit that is missing takes a part of the index with it.
    gaps = _has_gaps(checkpoint, retained)
    located = await locate(store, checkpoint, all_footers=gaps, progress=progress)
    batches = choose(
        dict.fromkeys(retained), chosen, "batch", store.url, "tidelog spark checkpoints"
    )
    listed = await _listed(store, checkpoint, batches, retained)
    homes = homes_of(checkpoint, located.entries)
    stores, expired = _state_stores(checkpoint, located, listed, batches, homes)
    units: list[Unit[UnitResult]] = [*stores]
    for name in sorted(located.assessment.live_segments()):
        size = checkpoint.segment_bytes[name]
        units.append(SegmentUnit(segment_object(name), size, check_query_segment))
    units.append(_files_unit(listed, batches))
    # Spark may clean up between the two listings, too.
    objects = frozenset({*listed.sizes, *checkpoint.objects})
    return WorkUnits(
        checkpoints=batches,
        listed=batches,
        findings=(
            *first_sight(checkpoint, located, listed, homes, batches),
            *obstacles(restart, batches),
        ),
        objects=tuple(sorted(listed.sizes)),
        units=tuple(sorted(units, key=lambda unit: unit.weight, reverse=True)),
        settle=partial(_settle, store, batches, objects),
        expired=expired,
    )


async def _settle(
    store: ObjectStore,
    batches: Sequence[int],
    objects: frozenset[str],
    results: Sequence[UnitResult],
) -> Settled:
    """List the batches again, and leave out findings of `objects` that Spark has cleaned up."""
    present = await _present(store, batches)
    settled = []
    for result in results:
        findings = []
        for finding in result.findings:
            is_missing = (finding.check, finding.found) == (Invariant.OBJECTS, NO_OBJECT)
            if is_missing and finding.where in objects:
                present.difference_update(finding.unusable)
            else:
                findings.append(finding)
        settled.append(replace(result, findings=tuple(findings)))
    return settled, present


def _retained(checkpoint: QueryCheckpoint, restart: Restart) -> range:
    """The batches from the oldest to the newest committed one; raises RestoreError for none."""
    committed = checkpoint.committed
    oldest = min(checkpoint.offsets or committed, default=0)
    retained = range(oldest, max(committed, default=oldest - 1) + 1)
    if retained:
        return retained
    for obstacle in restart.obstacles:
        raise obstacle.error()
    raise RestoreError(
        f"Spark checkpoint at {checkpoint.url}",
        expected="a committed batch",
        found="none that the running query has not purged meanwhile" if committed else "none",
        action="stop the query, or raise its minBatchesToRetain"
        if committed
        else "let the query complete its first batch",
    )


def _has_gaps(checkpoint: QueryCheckpoint, retained: range) -> bool:
    """Whether a commit is missing that should still carry the index of its batch."""
    needed = set(retained)
    for batch, commit in checkpoint.commits.items():
        first = batch - batch % BATCHES_PER_ROLL_UP
        if commit.index is not None and batch > first and first not in checkpoint.roll_ups:
            needed.add(batch - 1)
    return not needed <= checkpoint.commits.keys()


async def _listed(
    store: ObjectStore, checkpoint: QueryCheckpoint, batches: Iterable[int], retained: range
) -> Listed:
    sizes = {info.name: info.size async for info in store.list("")}
    planned = sorted({*batches}.intersection(checkpoint.offsets))
    newest: Mapping[str, Any] = {}
    bad: dict[int, str] = {}
    for batch, conf in (await gather_bounded(planned, partial(_offsets, store))).items():
        if isinstance(conf, str):
            bad[batch] = conf
        else:
            newest = conf
    # Nothing was cleaned up before the first purge of commits.
    expirable = frozenset(retained[:KEPT_LONGER] if retained[0] > 0 else ())
    return Listed(sizes, newest, bad, expirable)


async def _offsets(store: ObjectStore, batch: int) -> Mapping[str, Any] | str:
    """The settings in the offsets of a batch; what is wrong with them when they are unreadable."""
    try:
        return read_offsets(await store.get(f"{OFFSETS}{batch}")).metadata.get("conf") or {}
    except ObjectNotFoundError:
        return {}  # purged since the listing
    except ValueError as error:
        return str(error)


async def _present(store: ObjectStore, batches: Iterable[int]) -> set[int]:
    """The batches that are still retained: offsets and commits are purged from the oldest on."""
    oldest = min(await listed_batches(store, OFFSETS), default=0)
    return {batch for batch in batches if batch >= oldest}


ROW_CHECKSUMS: Final = "rows carry checksums that only Spark can read"
_ROW_CHECKSUM: Final = "spark.sql.streaming.stateStore.rowChecksum.enabled"


def _state_stores(
    checkpoint: QueryCheckpoint,
    located: Located,
    listed: Listed,
    batches: Collection[int],
    homes: Homes,
) -> tuple[list[StateStoreUnit], frozenset[int]]:
    """A unit per state store of the chosen batches, and the batches that Spark has expired."""
    retained_versions: dict[str, list[Version]] = defaultdict(list)
    expired: set[int] = set()
    for batch, commit in checkpoint.retained.items():
        for store_id in commit.ids if batch in batches else ():
            home = homes.get(key_of(batch, store_id))
            if home is None:
                continue
            if batch in listed.expirable and batch + 1 < located.assessment.stores[home].floor:
                expired.add(batch)
            else:
                retained_versions[home].append((batch + 1, store_id.id))
    changelogs: dict[str, dict[Version, IndexEntry | None]] = defaultdict(dict)
    for name, entry in {**dict.fromkeys(checkpoint.changelogs), **located.entries}.items():
        changelogs[name.directory][name.version, name.id] = entry
    snapshots: dict[str, list[Version]] = defaultdict(list)
    for snapshot in checkpoint.snapshots:
        if snapshot.id is not None:
            snapshots[snapshot.directory].append((snapshot.version, snapshot.id))
    sizes: dict[str, dict[str, int]] = defaultdict(dict)
    for file, size in listed.sizes.items():
        # A store's directory may hold those of others.
        folder = file.removeprefix(STATE).rpartition("/")[0].removesuffix("/SSTs")
        sizes[folder][file] = size
    checksums = str(listed.conf.get(_ROW_CHECKSUM)).lower() == "true"
    units = []
    for directory, versions in retained_versions.items():
        unit = StateStoreUnit(
            directory=directory,
            retained_versions=tuple(sorted(versions)),
            changelogs=changelogs[directory],
            snapshots=tuple(snapshots[directory]),
            sizes=sizes[directory],
            unfollowable=ROW_CHECKSUMS if checksums else None,
        )
        units.append(unit)
    return units, frozenset(expired)


_OF_A_QUERY: Final = re.compile(rf"^{STATE}.*/(_metadata|_stateSchema)/")
"""Schemas of states, and what Spark keeps of an operator."""


@dataclass(frozen=True, slots=True)
class FilesUnit:
    """Small files: commits and offsets of retained batches, and what Spark keeps of the query."""

    files: tuple[tuple[str, tuple[int, ...]], ...]
    """Names, and the batches that need each."""
    checksums: frozenset[str]

    @property
    def weight(self) -> int:
        """About a kilobyte each."""
        return len(self.files) << 10

    async def run(self, workspace: Workspace) -> UnitResult:
        reader = CheckedFiles(workspace.store, self.checksums)
        findings = []
        for name, batches in self.files:
            try:
                await reader.read(name)
            except UNREADABLE as error:
                findings.append(finding_of(error, [name], unusable=batches))
        return UnitResult(findings=tuple(findings), coverage=reader.coverage)


def _files_unit(listed: Listed, batches: Sequence[int]) -> FilesUnit:
    """The files of these batches, and those of the query that all of them need."""
    of_batches: dict[str, tuple[int, ...]] = {}
    for batch in batches:
        of_batches[f"{COMMITS}{batch}"] = of_batches[f"{OFFSETS}{batch}"] = (batch,)
    files, sidecars = [], set()
    for name in sorted(listed.sizes):
        if name.startswith(INDEX):
            needed_by: tuple[int, ...] | None = ()  # the footers of segments say the same
        elif name == METADATA or name.startswith(SOURCES) or _OF_A_QUERY.search(name):
            needed_by = tuple(batches)
        else:
            needed_by = of_batches.get(name)
        if needed_by is not None and not is_sidecar(name):
            files.append((name, needed_by))
            sidecars.add(sidecar(name))
    return FilesUnit(tuple(files), frozenset(sidecars & listed.sizes.keys()))
