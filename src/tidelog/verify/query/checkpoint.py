"""What there is to verify in the checkpoint of a Spark query.

Invariant: every id that the commit of a retained batch names belongs to a state store that is
checked, or a finding says that it is nowhere, or it lies below what Spark keeps.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from tidelog.checkpoint.invariants import Invariant
from tidelog.concurrency import Progress, gather_bounded
from tidelog.engines import Unit
from tidelog.errors import ObjectNotFoundError, RestoreError
from tidelog.spark.checkpoint.checkpoint import (
    COMMITS,
    OFFSETS,
    STATE,
    QueryCheckpoint,
    read_checkpoint,
    segment_object,
)
from tidelog.spark.checkpoint.commits import read_offsets
from tidelog.spark.checkpoint.liveness import KEPT_LONGER
from tidelog.spark.checkpoint.locate import locate
from tidelog.spark.format.names import BATCHES_PER_ROLL_UP
from tidelog.storage.port import ObjectStore
from tidelog.verify.query.plan import files_unit, state_stores
from tidelog.verify.query.structure import Listed, first_sight, homes_of
from tidelog.verify.results import NO_OBJECT, Choice, Settled, UnitResult, Work, choose
from tidelog.verify.segments import SegmentUnit, check_query_segment


async def read_query(store: ObjectStore, chosen: Choice, workers: int, progress: Progress) -> Work:
    """The work on the chosen batches; raises as `verification.verify`."""
    checkpoint = await read_checkpoint(store, progress)
    retained = _retained(checkpoint)
    # A commit that is missing takes a part of the index with it.
    gaps = _has_gaps(checkpoint, retained)
    located = await locate(store, checkpoint, all_footers=gaps, progress=progress)
    batches = choose(
        dict.fromkeys(retained), chosen, "batch", store.url, "tidelog spark checkpoints"
    )
    listed = await _listed(store, checkpoint, batches, retained)
    homes = homes_of(checkpoint, located.known)
    commits = {n: c for n, c in checkpoint.retained.items() if n in batches}
    stores, expired = state_stores(checkpoint, located, listed, commits, homes)
    units: list[Unit[UnitResult]] = [*stores]
    units += (
        SegmentUnit(segment_object(name), checkpoint.segment_bytes[name], check_query_segment)
        for name in sorted(located.assessment.live_segments())
    )
    if commits:
        units.append(files_unit(listed, commits))
    segments = map(segment_object, checkpoint.segments)
    # Spark may clean up between the two listings, too.
    objects = frozenset({*listed.sizes, *checkpoint.state_files, *segments})
    return Work(
        checkpoints=dict.fromkeys(batches),
        listed=batches,
        findings=tuple(first_sight(checkpoint, located, listed, homes, batches)),
        units=tuple(sorted(units, key=lambda unit: unit.weight, reverse=True)),
        settle=partial(_settle, store, batches, objects),
        expired=expired,
    )


async def _settle(
    store: ObjectStore,
    batches: Sequence[int],
    objects: frozenset[str],
    found: Sequence[UnitResult],
) -> Settled:
    """List the batches again, and leave out what Spark has cleaned up meanwhile: of the `objects`
    that were there when the verification began.
    """
    present = await _present(store, batches)
    settled = []
    for result in found:
        gone = [
            each
            for each in result.findings
            if (each.check, each.found) == (Invariant.OBJECTS, NO_OBJECT) and each.where in objects
        ]
        present -= {batch for each in gone for batch in each.unusable}
        left = tuple(each for each in result.findings if each not in gone)
        settled.append(replace(result, findings=left))
    return settled, present


def _retained(checkpoint: QueryCheckpoint) -> range:
    """The batches whose commits count; raises RestoreError when there is none.

    Those between the oldest and the newest are all expected.
    """
    damaged = (name.removeprefix(COMMITS) for name in checkpoint.damaged)
    committed = {*checkpoint.commits, *(int(leaf) for leaf in damaged if leaf.isdecimal())}
    oldest = min(checkpoint.offsets or committed, default=0)
    retained = range(oldest, max(committed, default=oldest - 1) + 1)
    if retained:
        return retained
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
    commits = checkpoint.commits
    before = {
        batch - 1
        for batch, commit in commits.items()
        if commit.index is not None
        and batch % BATCHES_PER_ROLL_UP
        and batch - batch % BATCHES_PER_ROLL_UP not in checkpoint.roll_ups
    }
    return not before.union(retained) <= commits.keys()


async def _listed(
    store: ObjectStore, checkpoint: QueryCheckpoint, batches: Iterable[int], retained: range
) -> Listed:
    sizes = {
        info.name: info.size
        for prefix in (STATE, COMMITS, OFFSETS)
        async for info in store.list(prefix)
    }
    planned = [batch for batch in batches if batch in checkpoint.offsets]
    offsets = await gather_bounded(planned, partial(_offsets, store))
    settings = [found for found in offsets.values() if not isinstance(found, str)]
    bad = {batch: found for batch, found in offsets.items() if isinstance(found, str)}
    # Nothing was cleaned up before the first purge of commits.
    expirable = frozenset(retained[:KEPT_LONGER] if retained[0] > 0 else ())
    return Listed(sizes, settings[-1] if settings else {}, bad, expirable)


async def _offsets(store: ObjectStore, batch: int) -> Mapping[str, Any] | str:
    """The settings in the offsets of a batch; what is wrong with them when they are unreadable."""
    try:
        return read_offsets(await store.get(f"{OFFSETS}{batch}")).conf
    except ObjectNotFoundError:
        return {}  # purged since the listing
    except ValueError as error:
        return str(error)


async def _present(store: ObjectStore, batches: Iterable[int]) -> set[int]:
    """The batches that are still retained: offsets and commits are purged from the oldest on."""
    leaves = [info.name.removeprefix(OFFSETS) async for info in store.list(OFFSETS)]
    oldest = min((int(leaf) for leaf in leaves if leaf.isdecimal()), default=0)
    return {batch for batch in batches if batch >= oldest}
