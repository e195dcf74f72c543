"""What operators make of one buffer in pieces reaches functions of whole buffers in few calls."""

from collections.abc import Iterable, Iterator
from math import inf

import pytest

from tests.support.stopwatch import Stopwatch
from tidelog.runtime.channels.buffers import BufferLimit
from tidelog.runtime.channels.messages import Batch, SideBatch
from tidelog.runtime.operators.turn import REST

MS = 1e-3


def pieces(count: int, records: int, *, timed: bool = False) -> list[Batch]:
    """What became of one buffer: consecutive numbers, which are event times, too."""
    numbers = [list(range(at * records, (at + 1) * records)) for at in range(count)]
    return [Batch(part, list(part) if timed else None) for part in numbers]


def joined(
    batches: Iterable[Batch],
    hold_ms: float = inf,
    making_ms: float = 0.0,
    others_ms: float = 0.0,
    limit: BufferLimit | None = None,
) -> list[Batch]:
    """Joins pieces that take so long to make, with other tasks running after each that comes."""
    clock = Stopwatch()

    def made() -> Iterator[Batch]:
        for batch in batches:
            clock.spend(making_ms * MS)
            yield batch

    got = []
    for batch in (limit or BufferLimit()).joined(made(), clock.monotonic, hold_ms * MS):
        got.append(batch)
        clock.spend(others_ms * MS)
    return got


@pytest.mark.parametrize("timed", [False, True], ids=["records", "event times"])
def test_pieces_are_joined(timed: bool) -> None:
    (one,) = joined(pieces(10, 100, timed=timed), making_ms=1)
    assert one.records == list(range(1000))
    assert one.times == (list(range(1000)) if timed else None)


def test_records_are_held_for_a_limited_time() -> None:
    counts = [len(batch) for batch in joined(pieces(10, 100), hold_ms=20, making_ms=6)]
    assert counts == [400, 400, 200]
    assert len(joined(pieces(10, 100), hold_ms=20, making_ms=50)) == 10


def test_what_other_tasks_do_between_pieces_does_not_count() -> None:
    made = [batch for piece in pieces(10, 100) for batch in (piece, REST)]
    got = joined(made, hold_ms=20, making_ms=0.5, others_ms=100)
    assert got.count(REST) == 10
    (one,) = (batch for batch in got if batch.records)
    assert one.records == list(range(1000))


def test_pieces_are_joined_until_they_fill_a_buffer() -> None:
    limit = BufferLimit(records=2_000)
    assert [len(batch) for batch in joined(pieces(10, 500), limit=limit)] == [2000, 2000, 1000]
    large = [Batch([bytes(400_000)]) for _ in range(6)]
    assert [len(batch) for batch in joined(large)] == [2, 2, 2]


def test_side_outputs_and_signs_pass_what_is_held() -> None:
    first, second, third = pieces(3, 2)
    side = SideBatch([7], tag="late")
    got = joined([first, second, side, REST, third])
    assert [batch.records for batch in got] == [[7], [], [0, 1, 2, 3, 4, 5]]
