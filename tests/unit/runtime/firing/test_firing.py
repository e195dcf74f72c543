"""While timers fire records and barriers pass, and the results are those of timers that fire all
at once: once each, in the order of each key, late where they were late.
"""

from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import Any

import pytest

from tests.support.depth import more_in_depth, one_by_one
from tests.support.pipelines import Outside
from tests.support.pressure import checkpoints, resumed
from tests.unit.runtime.firing.jobs import (
    EVENTS,
    FIRED,
    KINDS,
    RECORD,
    Reading,
    by_key,
    in_steps,
    inputs,
    job,
    run,
    settings,
)
from tidelog.checkpoint.manifest import Checkpoint

AT_ONCE = 1 << 20
JOINS = {
    "inner join": (),
    "left join": ("left",),
    "outer join": ("left", "right"),
}
"""And the sides whose records are emitted without a partner, too."""
OTHERS = [kind for kind in KINDS if kind not in JOINS and kind != "newest row"]


def amid(taken: Iterable[Checkpoint]) -> list[Checkpoint]:
    """Those within a pass through the timers."""
    return [c for c in taken if any(s.advancing is not None for _, s in c.subtasks())]


def at_once(kind: str, seed: str, monkeypatch: pytest.MonkeyPatch) -> Outside:
    """What is outside when nothing comes between two timers."""
    with monkeypatch.context() as patch:
        patch.setattr("tidelog.runtime.operators.turn.TURN_S", 1e6)
        in_steps(patch, AT_ONCE)
        sink, objects = run(kind, settings(), seed)
    return sink


@one_by_one(kind=OTHERS, seed=["1", "2"])
def test_results_are_those_of_timers_that_fire_at_once(
    kind: str, seed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = at_once(kind, seed, monkeypatch)
    in_steps(monkeypatch, 1)
    sink, _ = run(kind, settings(), seed)
    assert by_key(sink) == by_key(expected)


@one_by_one(kind=OTHERS, parallelism=[1, 3])
def test_a_job_that_goes_on_in_the_middle_of_firing_fires_the_rest_once(
    kind: str, parallelism: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_steps(monkeypatch, 1)
    sink, objects = run(kind, settings())
    chosen = amid(checkpoints(objects))
    assert chosen, "no checkpoint while timers fired"
    for checkpoint in chosen[: more_in_depth(3, 20)]:
        again = resumed(partial(job, kind), objects, sink, checkpoint, settings(parallelism))
        assert by_key(again) == by_key(sink)


@pytest.mark.parametrize("kind", ["tumbling", "sliding", "sessions", "timers"])
def test_records_are_handled_between_the_timers_of_one_moment(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_steps(monkeypatch, 1)
    EVENTS.clear()
    run(kind, settings())
    of_moment: dict[Any, list[int]] = {}
    for at, (what, time) in enumerate(EVENTS):
        if what == FIRED:
            of_moment.setdefault(time, []).append(at)
    between = [
        EVENTS[at]
        for fired in of_moment.values()
        for at in range(fired[0], fired[-1])
        if EVENTS[at][0] == RECORD
    ]
    assert between


@one_by_one(kind=[*JOINS, "newest row"], parallelism=[1, 2])
def test_joins_are_whole_and_once(
    kind: str, parallelism: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_steps(monkeypatch, 1)
    sink, objects = run(kind, settings())
    check_join(kind, sink)
    for checkpoint in checkpoints(objects)[:: more_in_depth(2, 1)]:
        again = resumed(partial(job, kind), objects, sink, checkpoint, settings(parallelism))
        check_join(kind, again)


def check_join(kind: str, sink: Outside) -> None:
    """What was joined is what there is of records that were not late."""
    late = Counter(record for _, what, record in sink.records if what == "late")
    assert not late or max(late.values()) == 1
    left, right = ([r for r in side if r not in late] for side in inputs(kind).values())
    if kind == "newest row":
        expected = [(r.key, r, newest_at(r, inputs(kind)["right"])) for r in left]
    else:
        expected = pairs(kind, left, right)
    found = Counter(record for record in sink.records if record[1] != "late")
    assert found == Counter(expected)


def pairs(kind: str, left: list[Reading], right: list[Reading]) -> list[tuple[Any, ...]]:
    made = [(r.key, r, s) for r in left for s in right if r.key == s.key and fit(kind, r, s)]
    paired = {reading for _, *pair in made for reading in pair}
    alone = []
    if "left" in JOINS[kind]:
        alone += [(r.key, r, None) for r in left if r not in paired]
    if "right" in JOINS[kind]:
        alone += [(r.key, None, r) for r in right if r not in paired]
    return [*made, *alone]


def fit(kind: str, left: Reading, right: Reading) -> bool:
    if kind == "outer join":
        return left.time // 20 == right.time // 20
    return -7 <= right.time - left.time <= 12


def newest_at(record: Reading, rows: list[Reading]) -> Reading | None:
    known = [row for row in rows if row.key == record.key and row.time <= record.time]
    return max(known, key=lambda row: (row.time, row.number), default=None)
