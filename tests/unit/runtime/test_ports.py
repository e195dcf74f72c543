"""What the runtime tells a program's own source: positions in completed checkpoints, where new
splits begin, the end; and what a source or a sink must not give.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.first_jobs.programs import run
from tidelog import (
    ConfigError,
    ForeachSink,
    IterableSource,
    Job,
    Sink,
    SinkContext,
    SinkWriter,
    Source,
)
from tidelog.errors import TidelogError
from tidelog.runtime.source import SplitReader
from tidelog.runtime.tasks.source_task import SourceTask
from tidelog.runtime.tasks.splits import SplitPositions


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

    def on_checkpoint_complete(self, positions: Mapping[str, Any]) -> None:
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
    job.source(source).sink(ForeachSink(found.append))
    return job


@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_source_hears_of_positions_when_their_checkpoint_is_complete_and_is_closed_once(
    tmp_path: Path, parallelism: int
) -> None:
    source, found = Told("a", "b", "c"), []
    source.splits.update(a=7, c=-3)

    heard = {"a": 7, "b": 0, "c": -3}
    until = lambda: source.positions == heard  # noqa: E731
    run(reading(source, found), tmp_path, until, parallelism=parallelism)
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
    run(reading(again, []), tmp_path, lambda: len(again.opened) == 3, parallelism=parallelism)
    assert again.opened == {"a": 0, "b": 1, "c": "new"}


def test_whose_a_split_is_is_looked_up_once_however_often_it_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owns, asked, source, looks = SplitPositions.owns, Counter[str](), Told("a", "b"), [0]

    def counted(positions: SplitPositions, split: str) -> bool:
        asked[split] += 1
        return owns(positions, split)

    def discover() -> list[str]:
        looks[0] += 1
        return ["a", "b"]

    monkeypatch.setattr(SplitPositions, "owns", counted)
    monkeypatch.setattr(source, "discover", discover)
    run(reading(source, []), tmp_path, lambda: looks[0] > 3, parallelism=2)
    assert asked == {"a": 2, "b": 2}


def test_other_tasks_have_their_turn_while_many_splits_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn, begun, add = [0], Counter[int](), SourceTask._add

    def next_turn() -> None:
        turn[0] += 1
        asyncio.get_running_loop().call_soon(next_turn)

    def counted(task: SourceTask, *args: Any, **kwargs: Any) -> None:
        if not begun:
            next_turn()
        begun[turn[0]] += 1
        add(task, *args, **kwargs)

    monkeypatch.setattr(SourceTask, "_add", counted)
    splits = IterableSource({f"{n}": [] for n in range(2_500)})
    run(reading(splits, []), tmp_path)
    assert begun.total() == 2_500 and max(begun.values()) <= 1_000


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
    def has_lag(self) -> bool:  # type: ignore[override]  # asked, not told
        return self._late and not self._source.arrived

    def read(self) -> list[Any]:
        if self.has_lag or self.position == 2:
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
    timed.sink(ForeachSink(found.append))
    looks = iter(range(100))

    def looked_long() -> bool:
        source.arrived = next(looks, None) is None
        return len(found) == 4

    run(job, tmp_path, looked_long)
    # The first record of a split is read before its time is known.
    assert found == [900_001, 1_001, 1_002, 900_002]


def test_a_split_whose_name_is_no_text_is_refused_before_a_checkpoint_has_it(
    tmp_path: Path,
) -> None:
    numbered: Any = {7: [1, 2, 3]}
    with pytest.raises(ConfigError, match="a split of the source; expected a name, a str; found 7"):
        run(reading(IterableSource(numbered), []), tmp_path)


class Mistaken(Source):
    """One split, whose reader is what it is given, or reads that."""

    def __init__(self, given: Any, splits: Any = ("one",)) -> None:
        self._given = given
        self._splits = splits

    def discover(self) -> Any:
        return self._splits

    def open(self, split: str, position: Any) -> Any:
        return self._given and _Given(self._given)


class _Given(SplitReader):
    def __init__(self, given: Any) -> None:
        self.position = 0
        self._given = given

    def read(self) -> Any:
        return self._given


@pytest.mark.parametrize(
    ("source", "error"),
    [
        (Mistaken([1], "one"), "splits of the source; expected a list; found 'one'"),
        (Mistaken(None), "reader of split 'one'; expected a SplitReader; found None"),
        (Mistaken(iter([1])), "returned a list_iterator, not a list of records"),
        (Mistaken("record"), "returned a str, not a list of records"),
        (Mistaken({"a": "record"}), "returned a dict, not a list of records"),
    ],
)
def test_what_a_source_must_not_give_is_named(source: Source, error: str, tmp_path: Path) -> None:
    found: list[Any] = []
    with pytest.raises(TidelogError, match=error):
        run(reading(source, found), tmp_path)
    assert found == []


class Writer(SinkWriter):
    def write(self, records: Sequence[Any]) -> None:
        """Ignores the records."""


class Texts(Writer):
    def pre_commit(self, checkpoint: int) -> Any:
        return "a text"


class Awaiting(Writer):
    async def write(self, records: Sequence[Any]) -> None:  # type: ignore[override]
        raise AssertionError("nobody awaits it")


class MistakenSink(Sink):
    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def open(self, context: SinkContext) -> Any:
        return self._writer


@pytest.mark.parametrize(
    ("writer", "error"),
    [
        (None, "writer of sink 'sink'; expected a SinkWriter"),
        (Awaiting(), "a SinkWriter without `async` methods"),
        (Texts(), r"sink; expected bytes or None from pre_commit\(\); found a str"),
    ],
)
def test_what_a_sink_must_not_give_is_named(writer: Any, error: str, tmp_path: Path) -> None:
    job = Job("mistaken")
    job.source(IterableSource([1, 2])).map(lambda n: n).sink(MistakenSink(writer))
    with pytest.raises(TidelogError, match=error):
        run(job, tmp_path)


class _Nowhere(SplitReader):
    def read(self) -> list[Any]:
        return [1]


class Placeless(Told):
    """A source whose readers never give a position."""

    def open(self, split: str, position: Any) -> SplitReader:
        return _Nowhere()


def test_a_reader_without_a_position_is_named_with_its_split(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"reader of split 'a'; expected a `position`"):
        run(reading(Placeless("a"), []), tmp_path, lambda: False)
