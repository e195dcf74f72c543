"""What the runtime tells a source: positions in completed checkpoints, where new splits begin, the
end.

Portions: how many records of a buffer a function gets at once, by what it costs.

Durations are those of a clock that only the function under test moves.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from tests.first_jobs.programs import run
from tidelog import Callback, Job, Source, SplitReader
from tidelog.runtime.channels.messages import Batch
from tidelog.runtime.operators.turn import Portion, Turn


class Told(Source):
    """Lists that grow, with notes of what the runtime says."""

    rediscover_s = 0.01
    new_split_position = "new"

    def __init__(self, *splits: str) -> None:
        self.splits = dict.fromkeys(splits, 0)
        self.opened: dict[str, Any] = {}
        self.positions: dict[str, Any] = {}
        self.closed: list[list[str]] = []
        self.reading: list[str] = []

    def discover(self) -> list[str]:
        return list(self.splits)

    def open(self, split: str, position: Any) -> SplitReader:
        self.opened[split] = position
        self.reading.append(split)
        return _Reader(self, split, position)

    def checkpointed(self, positions: Mapping[str, Any]) -> None:
        assert not self.closed
        self.positions.update(positions)

    def close(self) -> None:
        self.closed.append(list(self.reading))


class _Reader(SplitReader):
    def __init__(self, source: Told, split: str, position: Any) -> None:
        self.position = position
        self._source = source
        self._split = split

    def read(self) -> list[Any]:
        wanted = self._source.splits[self._split]
        if self.position == wanted:
            return []
        if wanted < 0:  # a position that moves without a record
            self.position = wanted
            return []
        self.position = wanted
        return [(self._split, wanted)]

    def close(self) -> None:
        self._source.reading.remove(self._split)


def reading(source: Source, found: list[Any]) -> Job:
    job = Job("told")
    job.source(source).sink(Callback(found.append))
    return job


@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_source_hears_of_positions_when_their_checkpoint_is_complete_and_is_closed_once(
    tmp_path: Path, parallelism: int
) -> None:
    source, found = Told("a", "b", "c"), []  # type: ignore[var-annotated]
    source.splits.update(a=7, c=-3)

    def both_heard() -> bool:
        return source.positions == {"a": 7, "b": 0, "c": -3}

    run(reading(source, found), tmp_path, both_heard, parallelism=parallelism)
    assert sorted(found) == [("a", 7), ("b", 0)]
    assert source.closed == [[]], "after the readers of all splits"


def test_a_position_that_moved_without_a_record_is_where_the_next_run_goes_on(
    tmp_path: Path,
) -> None:
    source = Told("a")
    source.splits.update(a=-5)
    run(reading(source, []), tmp_path, lambda: source.positions == {"a": -5})
    again = Told("a")
    again.splits.update(a=-5)
    run(reading(again, []), tmp_path, lambda: bool(again.opened))
    assert again.opened == {"a": -5}


@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_split_that_appears_later_begins_at_the_position_for_new_ones(
    tmp_path: Path, parallelism: int
) -> None:
    source = Told("a")

    def grown() -> bool:
        if source.positions and len(source.splits) == 1:
            source.splits.update(b=1)
        return len(source.positions) == 2

    run(reading(source, []), tmp_path, grown, parallelism=parallelism)
    assert source.opened == {"a": None, "b": "new"}
    again = Told("a", "b", "c")

    def all_opened() -> bool:
        return len(again.opened) == 3

    run(reading(again, []), tmp_path, all_opened, parallelism=parallelism)
    assert again.opened == {"a": 0, "b": 1, "c": "new"}


class Behind(Told):
    """One split has records that take their time; the other one is far ahead in event time."""

    def __init__(self) -> None:
        super().__init__("late", "early")
        self.arrived = False

    def open(self, split: str, position: Any) -> SplitReader:
        return _Arriving(self, split, position)


class _Arriving(SplitReader):
    def __init__(self, source: Behind, split: str, position: Any) -> None:
        self.position = position or 0
        self._source = source
        self._late = split == "late"

    @property
    def behind(self) -> bool:  # type: ignore[override]  # asked, not told
        return self._late and not self._source.arrived

    def read(self) -> list[Any]:
        if self.behind or self.position == 2:
            return []
        self.position += 1
        return [(1_000 if self._late else 900_000) + self.position]


def test_a_split_whose_records_are_on_their_way_is_not_idle_and_keeps_others_in_step(
    tmp_path: Path,
) -> None:
    source, found = Behind(), []  # type: ignore[var-annotated]
    job = Job("behind")
    timed = job.source(source).event_time(
        lambda time: time, max_delay_ms=0, idle_after_ms=1, max_ahead_ms=1_000
    )
    timed.sink(Callback(found.append))
    looks = iter(range(100))

    def looked_long() -> bool:
        source.arrived = next(looks, None) is None
        return len(found) == 4

    run(job, tmp_path, looked_long)
    # The first record of a split is read before its time is known.
    assert found == [900_001, 1_001, 1_002, 900_002]


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
