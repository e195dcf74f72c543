"""The verification of a checkpoint of Spark Structured Streaming.

Invariants: nothing is written to it; what a running query purges meanwhile is no damage.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from tidelog.checkpoint.finding import Findings, without_changes
from tidelog.checkpoint.invariants import Invariant
from tidelog.concurrency import Progress, gather_bounded, no_progress
from tidelog.errors import ObjectNotFoundError, RestoreError
from tidelog.spark.checkpoint.checkpoint import (
    COMMITS,
    OFFSETS,
    SEGMENTS,
    STATE,
    Checkpoint,
    read_checkpoint,
)
from tidelog.spark.checkpoint.commits import read_offsets
from tidelog.spark.checkpoint.liveness import KEPT_LONGER
from tidelog.spark.checkpoint.locate import locate
from tidelog.spark.format.names import BATCHES_PER_ROLL_UP
from tidelog.storage.port import ObjectStore
from tidelog.verify.findings import NO_OBJECT
from tidelog.verify.query.plan import plan
from tidelog.verify.query.structure import Listed
from tidelog.verify.report import Report, checkpoint_reports, not_checked
from tidelog.verify.unit import Choice, Engine


async def verify_query(
    store: ObjectStore,
    engine: Engine,
    *,
    chosen: Choice = "all",
    progress: Progress = no_progress,
) -> Report:
    """Verify all retained batches, the latest, or the one of a number.

    Raises ObjectNotFoundError for a batch that is not there, RestoreError when none is committed,
    and what the store raises.
    """
    checkpoint = await read_checkpoint(store, progress)
    retained = _retained(checkpoint)
    # A commit that is missing takes a part of the index with it.
    gaps = _has_gaps(checkpoint, retained)
    located = await locate(store, checkpoint, all_footers=gaps, progress=progress)
    batches = _batches(checkpoint, retained, chosen)
    listed = await _listed(store, checkpoint, batches, retained)
    work = plan(checkpoint, located, listed, batches)
    findings = Findings()
    findings.add(work.findings)
    results = await engine.run(work.units, progress)
    present = await _present(store, batches)
    segments = (SEGMENTS + name for name in checkpoint.segments)
    # Spark may clean up between the two listings, too.
    there = {*listed.sizes, *checkpoint.state_files, *segments}
    for finding in (finding for result in results for finding in result.findings):
        missing = finding.check == Invariant.OBJECTS and finding.found == NO_OBJECT
        if missing and finding.where in there:
            # It was there when the verification began: Spark has cleaned it up since.
            present -= set(finding.unusable)
        else:
            findings.add([finding])
    left = tuple(without_changes(findings.without_repeats(), batches, present))
    return Report(
        url=store.url,
        layout="query",
        engine=engine.name,
        checkpoints=checkpoint_reports(
            dict.fromkeys(batches), results, left, present, work.expired
        ),
        problems=left,
        unchecked=not_checked(results, present),
        all_seen=chosen == "all",
    )


def _retained(checkpoint: Checkpoint) -> range:
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
        found="none",
        action="let the query complete its first batch",
    )


def _has_gaps(checkpoint: Checkpoint, retained: range) -> bool:
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


def _batches(checkpoint: Checkpoint, retained: range, chosen: Choice) -> Sequence[int]:
    if chosen == "all":
        return retained
    batch = retained[-1] if chosen == "latest" else chosen
    if batch in retained:
        return [batch]
    raise ObjectNotFoundError(
        f"batch {batch} of the Spark checkpoint at {checkpoint.url}",
        expected=f"one of {retained[0]} to {retained[-1]}",
        found="no such batch",
        action="choose a batch that `tidelog spark checkpoints URL` shows",
    )


async def _listed(
    store: ObjectStore, checkpoint: Checkpoint, batches: Iterable[int], retained: range
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
