"""The history of a job, read from its manifests.

Invariants: a slot that cannot be read is an error, never left out; a slot is left out only when
the running job dropped it while its blocks were read.
"""

from collections.abc import Mapping, Sequence

from tidelog.catalog.inventory import data_sizes, read_slots
from tidelog.checkpoint.manifest import Checkpoint, is_canonical
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
    segments: set[str] = set()
    points: dict[SubtaskId, Point] = {}
    for operator, state in checkpoint.subtasks():
        ref, log_bytes = state.materialization, sum(map(len, state.inline))
        for log in state.log:
            segments.add(log.segment)
            log_bytes += log.length
        points[SubtaskId(operator.id, state.index)] = Point(
            slot=checkpoint.slot,
            created_ms=checkpoint.created_ms,
            seqno=state.seqno,
            upto=state.upto,
            table_bytes=ref.table_bytes if ref is not None else 0,
            log_bytes=log_bytes,
            updates=state.updates,
        )
    return MeasuredSnapshot(
        slot=checkpoint.slot,
        generation=checkpoint.author.generation,
        created_ms=checkpoint.created_ms,
        manifest_bytes=manifest_bytes,
        final=checkpoint.final,
        segments=frozenset(segments),
        points=points,
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
    retained: list[MeasuredSnapshot] = []
    incomplete: list[tuple[MeasuredSnapshot, CorruptObjectError]] = []
    for snapshot in history:
        error = _mismatch(snapshot, blocks.by_log)
        if error is None:
            retained.append(snapshot)
        else:
            incomplete.append((snapshot, error))
    present = (await read_slots(store)).sizes if incomplete else {}
    for snapshot, error in incomplete:
        if snapshot.slot in present:
            for segment in sorted(snapshot.segments & segment_errors.keys()):
                raise segment_errors[segment]
            raise error
    if not retained:
        raise RestoreError(
            f"store {store.url}",
            expected="checkpoints that stay while their log is read",
            found="a job that dropped all of them meanwhile",
            action="keep more of them with `tidelog run ... --retain N`, and try again",
        )
    return retained


def _mismatch(
    snapshot: MeasuredSnapshot, by_log: Mapping[LogKey, Tally]
) -> CorruptObjectError | None:
    """The error of a log whose blocks have other bytes than the manifest says."""
    for who, point in snapshot.points.items():
        stored_bytes = by_log.get((snapshot.slot, who), Tally()).stored_bytes
        if stored_bytes != point.log_bytes:
            return CorruptObjectError(
                f"object {object_names.checkpoint(Slot(snapshot.slot))}: log of {who}",
                expected=f"{point.log_bytes} bytes of blocks",
                found=f"{stored_bytes} bytes",
                action="run `tidelog inspect URL`, which names the object",
            )
    return None


async def read_stored(store: ObjectStore) -> dict[str, int]:
    """Bytes of every object of the job; raises what the store raises."""
    slots = await list_slots(store)
    manifests = {object_names.checkpoint(slot): size for slot, size in slots.items()}
    return await data_sizes(store) | manifests
