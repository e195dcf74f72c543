"""Sets of numbers as intervals behave as sets of numbers.

Where the changes of a checkpoint lie: each once, in order; a log that lacks some is damage.
"""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog import Checkpoint, CorruptObjectError
from tidelog.changelog.block import seal
from tidelog.changelog.change import ChangeBatch
from tidelog.changelog.segment import LogRange
from tidelog.checkpoint.manifest import Author, MaterializationRef, OperatorState, SubtaskState
from tidelog.ids import CheckpointId, Generation, KeyGroup, MaterializationId, SeqNo, Slot
from tidelog.spark.source.filters import EVERYTHING, HIGHEST, LOWEST, Intervals
from tidelog.spark.source.job.changes import ChangeRange, ranges_of

NUMBERS = st.integers(-3, 20)
SPANS = st.lists(st.tuples(NUMBERS, NUMBERS), max_size=6)
UNIVERSE = range(-5, 25)


def numbers(spans: list[tuple[int, int]]) -> set[int]:
    return {number for first, last in spans for number in range(first, last + 1)}


@given(SPANS, SPANS)
def test_union_and_intersection_are_those_of_sets(
    one: list[tuple[int, int]], other: list[tuple[int, int]]
) -> None:
    a, b = Intervals.of(one), Intervals.of(other)
    assert {n for n in UNIVERSE if n in a} == numbers(one)
    assert {n for n in UNIVERSE if n in a & b} == numbers(one) & numbers(other)
    assert Intervals.numbers(numbers(one)) == a
    assert a & EVERYTHING == a


@given(SPANS, NUMBERS, NUMBERS)
def test_what_lies_within_a_range_is_cut_to_it(
    spans: list[tuple[int, int]], start: int, end: int
) -> None:
    parts = list(Intervals.of(spans).within(start, end))
    found = [number for first, last in parts for number in range(first, last)]
    assert found == sorted(numbers(spans) & set(range(start, end)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3", [(3, 3)]),
        ("0,4-6", [(0, 0), (4, 6)]),
        (" 1 , 2 ", [(1, 2)]),
        ("100-", [(100, HIGHEST)]),
        ("0-", [(0, HIGHEST)]),
        ("4-6,5-9", [(4, 9)]),
    ],
)
def test_a_text_of_numbers_and_spans_is_read(text: str, expected: list[tuple[int, int]]) -> None:
    found = Intervals.parse(text)
    assert found is not None
    assert list(found.spans) == expected


@pytest.mark.parametrize("text", ["", "x", "1,,2", "-3", "6-4", "1-2-3", "1.5", "latest", "-"])
def test_any_other_text_is_refused(text: str) -> None:
    assert Intervals.parse(text) is None


def test_everything_has_the_ends_of_a_long() -> None:
    assert LOWEST in EVERYTHING and HIGHEST in EVERYTHING


def ranges(
    upto: int, seqno: int, log: Sequence[LogRange] = (), inline: Sequence[bytes] = ()
) -> list[ChangeRange]:
    """The ranges of changes in a checkpoint's log for a subtask whose table ends at `upto`."""
    ref = MaterializationRef(MaterializationId(1), "d", 1, SeqNo(upto), 1) if upto else None
    state = SubtaskState(0, 0, 7, SeqNo(seqno), "memory", ref, log=tuple(log), inline=tuple(inline))
    operator = OperatorState("count", 8, (), (state,))
    author = Author(Generation(0), "a")
    checkpoint = Checkpoint(Slot(3), author, CheckpointId(3), 0, "job", (operator,))
    return list(ranges_of(checkpoint, operator, state))


def log_range(first: int, end: int, segment: str = "s") -> LogRange:
    return LogRange(segment, 44, 1, SeqNo(first), SeqNo(end), KeyGroup(0), KeyGroup(7))


def inline(first: int, count: int) -> bytes:
    keys = [bytes([0, 0, 0, 0, number]) for number in range(count)]
    return seal(ChangeBatch(SeqNo(first), keys, [b"v"] * count)).data


def lying(found: list[ChangeRange]) -> list[tuple[int, int, str]]:
    return [(each.start, each.end, each.object) for each in found]


def test_changes_lie_in_segments_and_inline_blocks() -> None:
    log = (log_range(0, 4), log_range(4, 4, "metadata"), log_range(4, 9, "t"))
    found = ranges(2, 12, log, [inline(9, 3)])
    assert lying(found) == [(2, 4, "s"), (4, 9, "t"), (9, 12, "checkpoints/00000003.json")]
    assert {each.slot for each in found} == {3}


def test_changes_after_the_barrier_are_no_part_of_the_checkpoint() -> None:
    log = (log_range(0, 4), log_range(4, 9))
    assert lying(ranges(0, 6, log)) == [(0, 4, "s"), (4, 6, "s")]


@pytest.mark.parametrize(
    "log", [(log_range(0, 4), log_range(5, 9)), (log_range(2, 9),), (log_range(0, 8),), ()]
)
def test_a_log_that_lacks_changes_is_damage(log: tuple[LogRange, ...]) -> None:
    with pytest.raises(CorruptObjectError, match=r"00000003.*count-0.*expected changes 0 to 8"):
        ranges(0, 9, log)
