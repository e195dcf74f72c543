"""Which checkpoint's log tells which changes: each once, in order, and what is lost by its name."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.damage import checkpoint_in
from tests.support.jobs import filled
from tidelog.changelog.block import seal
from tidelog.changelog.change import ChangeBatch
from tidelog.changelog.segment import LogRange
from tidelog.checkpoint.manifest import (
    Author,
    Checkpoint,
    MaterializationRef,
    OperatorState,
    SubtaskState,
)
from tidelog.errors import CorruptObjectError
from tidelog.ids import CheckpointId, Generation, KeyGroup, MaterializationId, SeqNo, Slot
from tidelog.spark.source.job.coverage import Cover, Source, Stretch, cover, stretches


def source(slot: int, upto: int, seqno: int, **changes: Any) -> Source:
    """A subtask whose log reaches from `upto` to `seqno`, in a checkpoint in `slot`."""
    ref = MaterializationRef(MaterializationId(1), "d", 1, SeqNo(upto), 1) if upto else None
    state = SubtaskState(0, 0, 7, SeqNo(seqno), "memory", ref, **changes)
    operator = OperatorState("count", 8, (), (state,))
    author = Author(Generation(0), "a")
    checkpoint = Checkpoint(Slot(slot), author, CheckpointId(slot), 0, "job", (operator,))
    return Source(checkpoint, operator, state)


def logs() -> st.SearchStrategy[list[Source]]:
    """Checkpoints of a history: numbers and materializations only ever grow."""

    def grown(steps: list[tuple[int, int]]) -> list[Source]:
        made, upto, seqno = [], 0, 0
        for slot, (changes, materialized) in enumerate(steps, 1):
            seqno += changes
            upto = min(seqno, upto + materialized)
            made.append(source(slot, upto, seqno))
        return made

    return st.lists(st.tuples(st.integers(0, 9), st.integers(0, 12)), max_size=8).map(grown)


@given(logs(), st.integers(0, 70), st.integers(0, 70), st.sets(st.integers(1, 8)))
def test_changes_are_covered_once_and_lost_only_if_no_log_has_them(
    history: list[Source], start: int, end: int, dropped: set[int]
) -> None:
    kept = [each for each in history if each.checkpoint.slot not in dropped]
    parts = list(cover(kept, SeqNo(start), SeqNo(end)))
    covered = [number for part in parts for number in range(part.start, part.end)]
    assert covered == list(range(start, end))
    for part in parts:
        for number in range(part.start, part.end):
            having = [each for each in kept if each.upto <= number < each.state.seqno]
            assert (part.source in having) if part.source else not having


def test_the_oldest_of_the_logs_that_reach_the_end_is_taken() -> None:
    first, second, third = source(1, 0, 10), source(2, 5, 20), source(3, 5, 30)
    taken = list(cover([first, second, third], SeqNo(7), SeqNo(18)))
    assert taken == [Cover(second, SeqNo(7), SeqNo(18))]


def log_range(first: int, end: int, segment: str = "s") -> LogRange:
    return LogRange(segment, 44, 1, SeqNo(first), SeqNo(end), KeyGroup(0), KeyGroup(7))


def inline(first: int, count: int) -> bytes:
    keys = [bytes([0, 0, 0, 0, number]) for number in range(count)]
    return seal(ChangeBatch(SeqNo(first), keys, [b"v"] * count)).data


def lying(found: list[Stretch]) -> list[tuple[int, int, str]]:
    return [(each.start, each.end, each.object) for each in found]


def test_stretches_follow_ranges_and_inline_blocks() -> None:
    log = (log_range(0, 4), log_range(4, 4, "metadata"), log_range(4, 9, "t"))
    whole = source(3, 2, 12, log=log, inline=(inline(9, 3),))
    found = list(stretches(whole, SeqNo(2), SeqNo(12), slot=5))
    assert lying(found) == [(2, 4, "s"), (4, 9, "t"), (9, 12, "checkpoints/00000003.json")]
    assert {each.slot for each in found} == {5}


def test_changes_behind_the_barrier_are_no_part_of_the_checkpoint() -> None:
    whole = source(3, 0, 6, log=(log_range(0, 4), log_range(4, 9)))
    assert lying(list(stretches(whole, SeqNo(0), SeqNo(6), 3))) == [(0, 4, "s"), (4, 6, "s")]


@pytest.mark.parametrize(
    "log",
    [
        (log_range(0, 4), log_range(5, 9)),
        (log_range(2, 9),),
        (log_range(0, 8),),
        (),
    ],
)
def test_a_log_with_a_gap_is_damage(log: tuple[LogRange, ...]) -> None:
    with pytest.raises(CorruptObjectError, match=r"00000003.*count-0.*expected changes 0 to 8"):
        list(stretches(source(3, 0, 9, log=log), SeqNo(0), SeqNo(9), 3))


def test_real_checkpoints_have_no_gaps() -> None:
    for slot in (7, 8, 9):
        checkpoint = checkpoint_in(filled(), slot)
        for operator, state in checkpoint.subtasks():
            each = Source(checkpoint, operator, state)
            found = list(stretches(each, each.upto, state.seqno, slot))
            assert sum(one.end - one.start for one in found) == state.seqno - each.upto
            torn = replace(each, state=msgspec.structs.replace(state, log=()))
            if found and not state.inline:
                with pytest.raises(CorruptObjectError):
                    list(stretches(torn, each.upto, state.seqno, slot))
