"""Where the changes of a checkpoint lie: each once, in order; a log that lacks some is damage."""

from collections.abc import Sequence

import pytest

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
from tidelog.spark.source.job.changes import ChangeRange, ranges_of


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
    "log",
    [
        (log_range(0, 4), log_range(5, 9)),
        (log_range(2, 9),),
        (log_range(0, 8),),
        (),
    ],
)
def test_a_log_that_lacks_changes_is_damage(log: tuple[LogRange, ...]) -> None:
    with pytest.raises(CorruptObjectError, match=r"00000003.*count-0.*expected changes 0 to 8"):
        ranges(0, 9, log)
