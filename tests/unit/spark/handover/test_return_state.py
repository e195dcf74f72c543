"""What is known of key groups, on the way to Spark and back; and pages that are not whole."""

from typing import Any

import pyarrow as pa
import pytest

from tidelog.checkpoint.manifest import AheadOfWatermark, OperatorState, SubtaskState
from tidelog.errors import CorruptObjectError
from tidelog.ids import CheckpointId, Generation, SeqNo
from tidelog.spark.handover.back import operator_state
from tidelog.spark.handover.begin import described
from tidelog.spark.handover.pages import GroupFacts, groups_of
from tidelog.spark.handover.writing import Target, WrittenSubtask
from tidelog.spark.operators.layout import OperatorDescription, pack
from tidelog.storage.open import PLAIN


def subtask(index: int, groups: tuple[int, int], **fields: Any) -> SubtaskState:
    return SubtaskState(index, *groups, SeqNo(7 + index), "memory", **fields)


def test_event_time_goes_over_by_key_group() -> None:
    ahead = (AheadOfWatermark(1, 1, 90),)
    operator = OperatorState(
        "f",
        8,
        (),
        (
            subtask(0, (0, 3), watermark=50, ahead=ahead),
            subtask(1, (4, 5), watermark=40, advancing=60),
            subtask(2, (6, 7), watermark=50),
        ),
    )
    description = described(operator)
    assert (description.watermark, description.seqno) == (50, 9)
    assert description.ahead == (AheadOfWatermark(1, 1, 90), AheadOfWatermark(4, 5, 60))


def test_event_time_is_not_known_where_one_subtask_does_not_know_it() -> None:
    operator = OperatorState("f", 4, (), (subtask(0, (0, 1), watermark=5), subtask(1, (2, 3))))
    description = described(operator)
    assert description.watermark is None
    assert description.ahead == (AheadOfWatermark(0, 1, 5),)


def returned(
    description: OperatorDescription, facts: dict[int, GroupFacts]
) -> tuple[SubtaskState, ...]:
    target = Target(
        *("store", PLAIN, Generation(3), CheckpointId(2), "f", 0, (), description.key_groups, 2),
        SeqNo(20),
    )
    logs = {1: WrittenSubtask(1, (), SeqNo(25))}
    return operator_state(description, target, logs, facts).subtasks


def test_event_time_comes_back_by_key_group() -> None:
    description = OperatorDescription(
        operator="f", key_groups=8, states=(), watermark=10, ahead=(AheadOfWatermark(3, 3, 80),)
    )
    facts = {4: GroupFacts(95, 30), 5: GroupFacts(20, 30)}
    first, second = returned(description, facts)
    assert (first.watermark, first.advancing) == (10, None)
    assert first.ahead == (AheadOfWatermark(3, 3, 80),)
    assert (second.watermark, second.advancing) == (10, None)
    assert second.ahead == (AheadOfWatermark(4, 4, 95), AheadOfWatermark(5, 5, 20))
    assert [(s.first_key_group, s.last_key_group) for s in (first, second)] == [(0, 3), (4, 7)]
    assert [(s.start, s.seqno) for s in (first, second)] == [(20, 20), (20, 25)]


def test_a_query_without_event_time_comes_back_without() -> None:
    description = OperatorDescription(operator="f", key_groups=8, states=())
    for state in returned(description, {1: GroupFacts(None, 5)}):
        assert (state.watermark, state.advancing, state.ahead) == (None, None, ())


Page = tuple[int, int | None, int | None, bytes]
"""Key group, depth, number and bytes."""


def rows(pages: list[Page], size: int = 2) -> dict[int, list[tuple[bytes, bytes]]]:
    """The rows of pages that come in Arrow batches of this size."""
    names = ["key_group", "depth", "number", "page"]
    types = [pa.int32(), pa.int32(), pa.int32(), pa.binary()]
    batches = []
    for start in range(0, len(pages), size):
        columns = zip(*pages[start : start + size], strict=True)
        arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
        batches.append(pa.RecordBatch.from_arrays(arrays, names=names))
    return {group.key_group: list(group.rows) for group in groups_of(batches, "f")}


def reference(*entries: tuple[bytes, int]) -> bytes:
    return pack([(first, number.to_bytes(4, "big")) for first, number in entries])


def test_rows_come_from_the_pages_of_their_root() -> None:
    low, high = [(b"a", b"1"), (b"b", b"2")], [(b"c", b"3")]
    pages: list[Page] = [
        (1, 0, None, pack(low)),
        (2, 2, None, reference((b"", 7))),
        (2, None, 3, pack(low)),
        (2, None, 5, pack(high)),
        (2, None, 7, reference((b"", 3), (b"c", 5))),
        (9, 0, None, b""),
    ]
    for size in (1, 4, 6):
        assert rows(pages, size) == {1: low, 2: [*low, *high], 9: []}


@pytest.mark.parametrize(
    ("pages", "message"),
    [
        ([(2, 1, None, reference((b"", 3)))], "key group 2 of operator 'f'.*expected page 3"),
        ([(2, None, 3, pack([]))], "expected one root; found 0, and 1 other pages"),
    ],
)
def test_pages_that_are_not_whole_are_an_error(pages: list[Page], message: str) -> None:
    with pytest.raises(CorruptObjectError, match=message):
        rows(pages)
