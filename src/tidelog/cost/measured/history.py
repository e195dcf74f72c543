"""The history of a job, read from its manifests.

Invariants: a slot that cannot be read is an error, never left out; a slot is left out only when
the running job dropped it while its blocks were read.
"""

from collections.abc import Mapping, Sequence

from tidelog.catalog.inventory import data_sizes, read_slots
from tidelog.checkpoint.manifest import Checkpoint, SubtaskState, is_canonical
from tidelog.checkpoint.slots import list_slots
from tidelog.cost.measured.facts import BlockFacts, LogKey, MeasuredSnapshot, Point, Tally
from tidelog.errors import CorruptObjectError, RestoreError
from tidelog.ids import Slot, SubtaskId
from tidelog.storage import object_names
from tidelog.storage.port import ObjectStore


async def read_history(store: ObjectStore) -> tuple[list[MeasuredSnapshot], list[Checkpoint]]:
    """All retained checkpoints, oldest first, and their manifests.

    Raises ObjectNotFoundError (no job), CorruptObjectError and FormatVersionError (a slot that
    cannot be read), RestoreError (no checkpoint yet).
    """
    slots = await read_slots(store)
    # A canonical savepoint is none of the job's own: its log holds rows, not changes.
    checkpoints = [
        checkpoint for checkpoint in slots.all_checkpoints() if not is_canonical(checkpoint)
    ]
    if not checkpoints:
        raise RestoreError(
            f"store {store.url}",
            expected="a checkpoint",
            found="none",
            action="let the job complete its first checkpoint",
        )
    history = [_snapshot(checkpoint, slots.sizes[checkpoint.slot]) for checkpoint in checkpoints]
    return history, checkpoints


def _snapshot(checkpoint: Checkpoint, manifest_bytes: int) -> MeasuredSnapshot:
    return MeasuredSnapshot(
        slot=checkpoint.slot,
        generation=checkpoint.author.generation,
        created_ms=checkpoint.created_ms,
        manifest_bytes=manifest_bytes,
        final=checkpoint.final,
        segments=frozenset(log.segment for _, s in checkpoint.subtasks() for log in s.log),
        points={
            SubtaskId(operator.id, state.index): _point(checkpoint, state)
            for operator, state in checkpoint.subtasks()
        },
    )


def _point(checkpoint: Checkpoint, state: SubtaskState) -> Point:
    ref = state.materialization
    return Point(
        slot=checkpoint.slot,
        created_ms=checkpoint.created_ms,
        seqno=state.seqno,
        upto=state.upto,
        table_bytes=ref.table_bytes if ref is not None else 0,
        log_bytes=sum(log.length for log in state.log) + sum(map(len, state.inline)),
        updates=state.updates,
    )


async def without_dropped(
    store: ObjectStore,
    history: Sequence[MeasuredSnapshot],
    blocks: BlockFacts,
    segment_errors: Mapping[str, RestoreError],
) -> list[MeasuredSnapshot]:
    """The history without the checkpoints that were dropped while blocks were read.

    A checkpoint whose blocks do not add up to what its manifest names was dropped, or a segment of
    its log is gone, whose error it raises, or damaged: then it raises CorruptObjectError. Raises
    RestoreError when none is left.
    """
    short = {
        snapshot.slot: mismatch
        for snapshot in history
        if (mismatch := _first_mismatch(snapshot, blocks.by_log)) is not None
    }
    there = (await read_slots(store)).sizes if short else {}
    segments = {snapshot.slot: snapshot.segments for snapshot in history}
    for slot, (who, expected, actual) in short.items():
        if slot in there:
            for segment in sorted(segments[slot] & segment_errors.keys()):
                raise segment_errors[segment]
            raise CorruptObjectError(
                f"object {object_names.checkpoint(Slot(slot))}: log of {who}",
                expected=f"{expected} bytes of blocks",
                found=f"{actual} bytes",
                action="run `tidelog inspect URL`, which names the object",
            )
    retained = [snapshot for snapshot in history if snapshot.slot not in short]
    if not retained:
        raise RestoreError(
            f"store {store.url}",
            expected="checkpoints that stay while their log is read",
            found="a job that dropped all of them meanwhile",
            action="keep more of them with `tidelog run ... --retain N`, and try again",
        )
    return retained


def _first_mismatch(
    snapshot: MeasuredSnapshot, by_log: Mapping[LogKey, Tally]
) -> tuple[SubtaskId, int, int] | None:
    for who, point in snapshot.points.items():
        stored_bytes = by_log.get((snapshot.slot, who), Tally()).stored_bytes
        if stored_bytes != point.log_bytes:
            return who, point.log_bytes, stored_bytes
    return None


async def read_stored(store: ObjectStore) -> dict[str, int]:
    """Bytes of every object of the job; raises what the store raises."""
    slots = await list_slots(store)
    manifests = {object_names.checkpoint(slot): size for slot, size in slots.items()}
    return await data_sizes(store) | manifests
