"""Portions: how many records of a buffer a function gets at once, by what it costs.

Durations are those of a clock that only the function under test moves.
"""

import random
from collections.abc import Callable, Sequence
from typing import Final

import pytest

from tidelog.runtime.channels.messages import Batch
from tidelog.runtime.operators.turn import Portion, Turn

MS: Final = 1e-3
BUFFER: Final = 2048


class Task:
    """Hands buffers to a function that takes as long as `cost` says of the number of records."""

    def __init__(self, cost: Callable[[int], float]) -> None:
        self.cost = cost
        self.now_s = 0.0
        self.under_way = False
        self.portion = Portion()
        self.turn = Turn(lambda: self.now_s, lambda: self.under_way)

    def buffer(self, records: int = BUFFER) -> Sequence[int]:
        """Handle a buffer; returns the sizes of the portions."""
        sizes = []
        for piece in self.portion.pieces(Batch(list(range(records))), self.turn):
            count = len(piece.records)
            took = self.cost(count)
            self.now_s += took
            self.portion.took(count, took)
            sizes.append(count)
        assert sum(sizes) == records
        return sizes

    def buffers(self, count: int, records: int = BUFFER) -> list[int]:
        return [size for _ in range(count) for size in self.buffer(records)]


@pytest.mark.parametrize("checkpoint", [False, True], ids=["ordinary", "under way"])
@pytest.mark.parametrize("call_ms", [6, 20, 100, 2000])
def test_a_function_that_takes_as_long_for_any_number_of_records_gets_whole_buffers(
    call_ms: float, checkpoint: bool
) -> None:
    task = Task(lambda _: call_ms * MS)
    task.under_way = checkpoint
    task.buffers(2)
    assert task.buffers(100) == [BUFFER] * 100


@pytest.mark.parametrize("record_ms", [0.01, 0.1, 1.0, 4.0])
def test_records_that_take_long_come_in_portions_of_half_a_turn(record_ms: float) -> None:
    task = Task(lambda records: records * record_ms * MS)
    task.buffers(1)
    longest = max(task.buffers(20)) * record_ms
    assert 2.5 <= longest <= 5.1


def test_a_record_that_takes_longer_than_a_turn_comes_alone_but_for_a_trial_now_and_then() -> None:
    task = Task(lambda records: records * 50 * MS)
    task.buffers(1, 64)
    sizes = task.buffers(1, 1000)
    assert max(sizes) == 2
    assert sizes.count(2) <= len(sizes) * 0.1


def test_a_portion_may_take_twice_as_long_as_a_call_by_itself() -> None:
    task = Task(lambda records: (20 + records * 0.1) * MS)
    task.buffers(2)
    sizes = task.buffers(20)
    assert 150 <= max(sizes) <= 250
    assert sum(map(task.cost, sizes)) <= 2.3 * sum(map(task.cost, [BUFFER] * 20))


def test_a_function_that_becomes_slow_is_cut_at_its_second_portion() -> None:
    task = Task(lambda records: records * 1e-6)
    task.buffers(20)
    task.cost = lambda records: records * 1 * MS
    first, *later = task.buffers(2)
    assert first == BUFFER
    assert max(later) <= 10


def test_a_function_that_becomes_quick_gets_whole_buffers_again() -> None:
    task = Task(lambda records: records * 20 * MS)
    task.buffers(1)
    task.cost = lambda records: records * 1e-6
    task.buffers(1)
    assert task.buffers(5) == [BUFFER] * 5


def test_a_function_whose_records_were_slow_and_whose_calls_are_slow_now_gets_whole_buffers() -> (
    None
):
    task = Task(lambda records: records * 20 * MS)
    task.buffers(1)
    task.cost = lambda _: 20 * MS
    task.buffers(1)
    assert len(task.buffers(20)) <= 22


def test_one_pause_does_not_cut_a_quick_function() -> None:
    task = Task(lambda records: records * 1e-6)
    task.buffers(20)
    task.cost = lambda records: 80 * MS
    task.buffers(1)
    task.cost = lambda records: records * 1e-6
    assert len(task.buffers(20)) <= 25


@pytest.mark.parametrize("seed", range(5))
def test_times_that_vary_do_not_make_calls_small(seed: int) -> None:
    chance = random.Random(seed)
    task = Task(lambda _: 20 * MS * chance.uniform(0.5, 2))
    task.buffers(2)
    assert len(task.buffers(200)) <= 200 * 1.5


@pytest.mark.parametrize("seed", range(5))
def test_records_that_vary_hold_the_loop_for_a_few_turns_at_most(seed: int) -> None:
    chance = random.Random(seed)

    def cost(records: int) -> float:
        return sum(chance.choice((0.0, 0.1, 1.0)) for _ in range(records)) * MS

    task = Task(cost)
    task.buffers(1)
    held = []
    task.cost = lambda records: held.append(cost(records)) or held[-1]
    task.buffers(20)
    assert sorted(held)[int(len(held) * 0.99)] <= 30 * MS
    assert max(held) <= 100 * MS


def test_single_records_that_come_one_by_one_leave_the_next_buffer_cut() -> None:
    task = Task(lambda records: records * 50 * MS)
    task.buffers(100, 1)
    assert task.buffer()[0] <= 2


def test_a_checkpoint_under_way_cuts_what_takes_long_and_leaves_what_does_not() -> None:
    quick, slow = Task(lambda records: records * 5e-8), Task(lambda records: records * 20e-6)
    for task in (quick, slow):
        task.buffers(20)
        task.under_way = True
    assert quick.buffer() == [BUFFER]
    assert set(slow.buffers(5)[:-1]) == {128}


def test_a_clock_that_stands_still_cuts_only_the_first_buffers() -> None:
    task = Task(lambda _: 0.0)
    assert task.buffer(100) == [8, 16, 32, 44]
    task.buffers(3)
    assert task.buffer() == [BUFFER]
