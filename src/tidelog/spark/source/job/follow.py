"""The changes of a running job as a stream: from the positions of one checkpoint to another's.

Invariants: between two offsets each change comes exactly once, whichever retained checkpoint still
has it in its log, so a batch that Spark plans again is the same; changes that left all logs are an
error, unless the user has said that they may be skipped.
"""

from collections.abc import Sequence
from typing import NoReturn

from tidelog.catalog.inventory import find_checkpoint
from tidelog.checkpoint.manifest import Checkpoint, Savepoint, is_canonical
from tidelog.errors import RestoreError
from tidelog.ids import SeqNo, Slot
from tidelog.spark.source.job.changes import parts_of
from tidelog.spark.source.job.checkpoints import checkpoints, newest
from tidelog.spark.source.job.coverage import Cover, Source, Stretch, cover, stretches
from tidelog.spark.source.offsets import JobOffset, Place
from tidelog.spark.source.options import Starting
from tidelog.spark.source.parts import Part, Request
from tidelog.storage.port import ObjectStore

_NEW_STREAM = (
    'read view "state" of a slot, then start a new stream (a new checkpointLocation) with option '
    "startingSlot set to it"
)


async def initial(store: ObjectStore, starting: Starting) -> JobOffset:
    """Where a new stream starts; raises as `find_checkpoint` for a slot that is not there."""
    if isinstance(starting, int):
        checkpoint = await find_checkpoint(store, Slot(starting))
        if is_canonical(checkpoint):
            raise _rows_only(checkpoint)
        return JobOffset.at(checkpoint)
    if starting == "latest":
        return await latest(store)
    retained = await _with_changes(store)
    # Savepoints stay for ever; the log between an old one and the next checkpoint is gone.
    oldest = [each for each in retained if not isinstance(each, Savepoint)] or retained
    return beginning(oldest[0]) if oldest else JobOffset(-1, {})


async def latest(store: ObjectStore) -> JobOffset:
    """Where the newest checkpoint ends; raises ObjectNotFoundError where no job has started."""
    checkpoint = await newest(store)
    return JobOffset(-1, {}) if checkpoint is None else JobOffset.at(checkpoint)


async def _with_changes(store: ObjectStore) -> list[Checkpoint]:
    """All but canonical savepoints: those hold rows."""
    return [each for each in await checkpoints(store) if not is_canonical(each)]


def beginning(oldest: Checkpoint) -> JobOffset:
    """Before the log of a checkpoint."""
    sources = [Source(oldest, operator, state) for operator, state in oldest.subtasks()]
    starts = {(each.operator.id, each.state.index): each.upto for each in sources}
    return JobOffset(oldest.slot - 1, starts)


async def plan(
    store: ObjectStore, request: Request, start: JobOffset, end: JobOffset
) -> Sequence[Part]:
    """A part per object that has changes between the offsets; raises as `between`."""
    retained = await _with_changes(store)
    later = [checkpoint for checkpoint in retained if checkpoint.slot > start.slot]
    return parts_of(between(later, request, start, end), request)


def between(
    later: Sequence[Checkpoint], request: Request, start: JobOffset, end: JobOffset
) -> list[Stretch]:
    """Where the changes between two offsets lie, given the checkpoints after the first.

    Raises RestoreError when some left the log before they were read, when the job went back to
    an older slot, or when it goes on with other subtasks.
    """
    if request.options.fail_on_data_loss:
        _check_shape(later, start)
    sources: dict[Place, list[Source]] = {}
    for checkpoint in later:
        for operator, state in checkpoint.subtasks():
            place = operator.id, state.index
            sources.setdefault(place, []).append(Source(checkpoint, operator, state))
            _check_forward(place, start, checkpoint.slot, state.seqno)
    found: list[Stretch] = []
    for place, upto in end.next.items():
        operator_id, subtask = place
        if not request.wanted.has(operator=operator_id, subtask=subtask):
            continue
        _check_forward(place, start, end.slot, upto)
        for part in cover(sources.get(place, []), start.next.get(place, SeqNo(0)), upto):
            if part.source is not None:
                found += stretches(part.source, part.start, part.end, end.slot)
            elif request.options.fail_on_data_loss:
                _fail(place, part)
    return found


def _rows_only(savepoint: Checkpoint) -> RestoreError:
    return RestoreError(
        f"option startingSlot: slot {savepoint.slot}",
        expected="a checkpoint, whose log holds changes",
        found="a canonical savepoint, which holds rows",
        action="choose another slot that `tidelog checkpoints list URL` shows",
    )


def _check_shape(later: Sequence[Checkpoint], start: JobOffset) -> None:
    """A new shape numbers its changes anew, and the rest of the old one's is not in its log."""
    read: dict[str, set[int]] = {}
    for operator_id, subtask in start.next:
        read.setdefault(operator_id, set()).add(subtask)
    for checkpoint in later:
        for operator in checkpoint.operators:
            known = read.get(operator.id)
            if known is None:
                continue
            there = {state.index for state in operator.subtasks}
            anew = any(
                state.start > start.next.get((operator.id, state.index), 0)
                for state in operator.subtasks
            )
            if there != known or anew:
                raise _reshaped(operator.id, len(known), len(there), checkpoint.slot)


def _reshaped(operator: str, before: int, after: int, slot: int) -> RestoreError:
    return RestoreError(
        f"stream of operator {operator!r}",
        expected=f"the {before} subtasks whose changes it has read",
        found=f"{after} that number their changes anew in slot {slot}: the job was restored into "
        "another shape",
        action=f"{_NEW_STREAM}; or go on with option failOnDataLoss set to false, which leaves out "
        "what was not read of the old subtasks",
        retry_safe=False,
    )


def _check_forward(place: Place, start: JobOffset, slot: int, seqno: SeqNo) -> None:
    read = start.next.get(place, SeqNo(0))
    if seqno < read:
        raise RestoreError(
            f"stream of {place[0]}-{place[1]}",
            expected=f"slot {slot} to continue the {read} changes that are read",
            found=f"{seqno} changes: the job went back to an older slot, and what it had changed "
            "since is not part of its history any more",
            action=f"undo what was made of the changes after that slot: {_NEW_STREAM}",
            retry_safe=False,
        )


def _fail(place: Place, lost: Cover) -> NoReturn:
    raise RestoreError(
        f"changes {lost.start} to {lost.end - 1} of {place[0]}-{place[1]}",
        expected="in the log of a retained checkpoint",
        found="in none: they were materialized and cut before the stream has read them",
        action=f"{_NEW_STREAM}; or skip them with option failOnDataLoss set to false; the job's "
        "setting retain keeps logs for longer",
    )
