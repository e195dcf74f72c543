"""Joins and enriched streams are whole and once, from whatever unaligned checkpoint and in
whatever shape they go on: each record is in all of its pairs, or late. So are unions whose
inputs change places."""

from collections import Counter
from functools import partial
from random import Random
from typing import Any

import pytest

from tests.support.clock import VirtualClock
from tests.support.depth import more_in_depth, one_by_one
from tests.support.pipelines import Outside
from tests.support.pressure import (
    Eager,
    checkpoints,
    overtaken,
    pressed,
    resumed,
    slowly,
    under_pressure,
)
from tidelog import Job, JobConfig, OutputTag, Tumbling
from tidelog.checkpoint.config import CheckpointConfig
from tidelog.runtime.graph import KeyedStream, Stream
from tidelog.runtime.operators.window import WindowSpan

KEYS = 5
DELAY_MS = 4
LEFT, RIGHT = "left", "right"
_Record = tuple[str, str, int, int]
"""Side, key, number, time."""


def drawn(side: str, disorder: int, count: int) -> dict[str, list[_Record]]:
    """Two splits. A side that goes on when the other has ended is alone in event time: some of it
    is late.
    """
    chance = Random(side)

    def record(number: int, time: int) -> _Record:
        # No two of one time in two splits: the later row of a table is one of them.
        later = 2 * chance.randrange(disorder // 2) + number // 100
        return side, f"k{chance.randrange(KEYS)}", number, time + later

    return {
        f"{side}-0": [record(n, 4 * n - 60) for n in range(count)],
        f"{side}-1": [record(100 + n, 8 * n + 40) for n in range(10)],
    }


LEFTS = drawn(LEFT, 25, 36)
RIGHTS = drawn(RIGHT, 60, 60)
ROWS = drawn(RIGHT, DELAY_MS, 16)
"""Rows of a table are never late, or what is the newest would depend on what was read first."""


def interval(how: Any) -> Any:
    return lambda left, right, late: left.join(right, (-7, "12ms"), how=how, late=late)


def same_window(how: Any, slide_ms: int) -> Any:
    span = WindowSpan(20, slide_ms)
    return lambda left, right, late: left.join(right, window=span, how=how, late=late)


def newest(left: KeyedStream, right: KeyedStream, late: OutputTag) -> Stream:
    return left.enrich(right, lambda record, row: (record, row), late=late)


BUILDS = {
    "inner": interval("inner"),
    "left": interval("left"),
    "outer": interval("outer"),
    "tumbling": same_window("outer", 20),
    "sliding": same_window("left", 8),
    "newest": newest,
}


def job(kind: str, sink: Outside, clock: VirtualClock) -> Job:
    made, late = Job("join"), OutputTag("late")
    rights = ROWS if kind == "newest" else RIGHTS
    left, right = (
        made.source(Eager(splits, portion=4), name=name)
        .event_time(lambda r: r[3], max_delay_ms=DELAY_MS)
        .key_by(lambda r: r[1])
        for name, splits in ((LEFT, LEFTS), (RIGHT, rights))
    )
    joined = BUILDS[kind](left, right, late)
    both = joined.map(lambda pair: (*pair, "joined")).union(
        joined.side_output(late).map(lambda record: (record, None, "late"))
    )
    # Takes so long that checkpoints pass within an expiry, and barriers overtake records.
    slowly(both.rebalance(), clock, 0.2).sink(sink)
    return made


def matches(kind: str, left: _Record, right: _Record) -> bool:
    if kind == "tumbling":
        return left[1] == right[1] and left[3] // 20 == right[3] // 20
    return left[1] == right[1] and -7 <= right[3] - left[3] <= 12


def check(sink: Outside, kind: str) -> None:
    """What was joined is what there is of records that were not late."""
    late = Counter(record for record, _, what in sink.records if what == "late")
    assert not late or max(late.values()) == 1
    found = Counter((left, right) for left, right, what in sink.records if what == "joined")
    lefts, rights = (
        [r for split in splits.values() for r in split if r not in late]
        for splits in (LEFTS, ROWS if kind == "newest" else RIGHTS)
    )
    if kind == "newest":
        assert found == Counter((record, version(record, rights)) for record in lefts)
    elif kind == "sliding":
        # What is late for one window may be on time for another: only this much is certain.
        assert {left for left, _ in found} == {*lefts}
        assert not {right for _, right in found} & set(late)
    else:
        assert found == Counter(expected(kind, lefts, rights))


def expected(kind: str, lefts: list[_Record], rights: list[_Record]) -> list[Any]:
    pairs = [(left, right) for left in lefts for right in rights if matches(kind, left, right)]
    paired = {record for pair in pairs for record in pair}
    alone: list[Any] = [(left, None) for left in lefts if left not in paired]
    if kind in ("outer", "tumbling"):
        alone += [(None, right) for right in rights if right not in paired]
    return [*pairs, *(alone if kind != "inner" else ())]


def version(record: _Record, rows: list[_Record]) -> _Record | None:
    mine = [row for row in rows if row[1] == record[1] and row[3] <= record[3]]
    # Of one time the last that came counts.
    return max(mine, key=lambda row: (row[3], row[2]), default=None)


def settings(parallelism: int) -> JobConfig:
    return pressed(parallelism=parallelism, checkpoint=CheckpointConfig(interval=0.5, timeout=1e6))


@pytest.mark.usefixtures("workers")
@one_by_one(kind=list(BUILDS), shapes={"1-3": (1, 3), "3-2": (3, 2), "2-1": (2, 1)})
def test_a_join_goes_on_in_another_shape(
    kind: str, shapes: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("state.timed_records", "runtime.operators.join", "runtime.operators.enrich"):
        monkeypatch.setattr(f"tidelog.{module}.STEP", 1)
    before, after = shapes
    sink, objects = under_pressure(partial(job, kind), settings(before))
    check(sink, kind)
    assert any(what == "late" for *_, what in sink.records)
    taken = checkpoints(objects)
    assert sum(map(overtaken, taken)) > 0
    amid = [c for c in taken if any(s.advancing is not None for _, s in c.subtasks())]
    assert amid, "no checkpoint within an expiry"
    few = more_in_depth(4, 8)
    some = [*taken[:: -(-len(taken) // few)], *amid[: few // 2]]
    for checkpoint in some:
        check(resumed(partial(job, kind), objects, sink, checkpoint, settings(after)), kind)


LENGTH = more_in_depth(20, 40)
AHEAD = Eager({"ahead": [("ahead", n, 5_000 + 50 * n) for n in range(LENGTH)]}, 4)
BEHIND = Eager({"behind": [("behind", n, 50 * n) for n in range(LENGTH)]}, 4)


def union_job(sink: Outside, clock: VirtualClock, *, swapped: bool, windows: bool) -> Job:
    union_job = Job("swapped")
    streams = []
    for name, source in (("ahead", AHEAD), ("behind", BEHIND)):
        timed = union_job.source(source, name=name).map(lambda r: r, name=f"of-{name}")
        streams.append(timed.event_time(lambda r: r[2], name=f"time-of-{name}"))
    if swapped:
        streams.reverse()
    merged = slowly(streams[0].union(streams[1]).rebalance(), clock, 0.2)
    if windows:
        keyed = merged.key_by(lambda r: r[0])
        merged = keyed.window(Tumbling(1_000)).count()
    merged.sink(sink)
    return union_job


@one_by_one(windows=[False, True], after=[2, 3])
def test_records_in_flight_of_swapped_inputs_are_handled_once_and_in_time(
    windows: bool, after: int
) -> None:
    def chosen(parallelism: int) -> JobConfig:
        schedule = CheckpointConfig(interval=0.1, timeout=1e6)
        return pressed(parallelism=parallelism, channel_buffers=1, checkpoint=schedule)

    sink, objects = under_pressure(partial(union_job, swapped=False, windows=windows), chosen(2))
    expected = sorted(sink.records)
    assert len(expected) == (2 * LENGTH // 20 if windows else 2 * LENGTH)
    in_flight, swapped = 0, partial(union_job, swapped=True, windows=windows)
    for checkpoint in checkpoints(objects)[:-1:2]:
        in_flight += any(state.in_flight is not None for _, state in checkpoint.subtasks())
        again = resumed(swapped, objects, sink, checkpoint, chosen(after))
        assert sorted(again.records) == expected, checkpoint.slot
    assert in_flight >= 3
