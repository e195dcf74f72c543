"""While timers fire records and barriers pass, and the results are those of timers that fire all
at once: once each, in the order of each key, late where they were late.
"""

from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import Any

import pytest

from tests.support.depth import in_pairs, more_in_depth
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
JOINS = {"inner join": (), "left join": ("left",), "outer join": ("left", "right")}
"""And the sides whose records are emitted without a partner, too."""
OTHERS = [kind for kind in KINDS if kind not in JOINS and kind != "newest row"]


def amid(taken: Iterable[Checkpoint]) -> list[Checkpoint]:
    """Those within a pass through the timers."""
    return [c for c in taken if any(s.advancing is not None for _, s in c.subtasks())]


def at_once(monkeypatch: pytest.MonkeyPatch, kind: str, **options: Any) -> Outside:
    """What is outside when nothing comes between two timers."""
    with monkeypatch.context() as patch:
        patch.setattr("tidelog.runtime.operators.turn.TURN_S", 1e6)
        in_steps(patch, AT_ONCE)
        sink, _ = run(kind, settings(), **options)
    return sink


@in_pairs(kind=OTHERS, seed=["1", "2"], late=[True, False])
def test_results_are_those_of_timers_that_fire_at_once(
    kind: str, seed: str, late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = at_once(monkeypatch, kind, seed=seed, late=late)
    in_steps(monkeypatch, 1)
    sink, _ = run(kind, settings(), seed=seed, late=late)
    assert by_key(sink) == by_key(expected)


@in_pairs(kind=OTHERS, parallelism=[1, 3], late=[True, False])
def test_a_job_that_goes_on_in_the_middle_of_firing_fires_the_rest_once(
    kind: str, parallelism: int, late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_steps(monkeypatch, 1)
    late = late and kind != "timers that register the next one"  # too few to be under way for long
    sink, objects = run(kind, settings(), late=late)
    chosen = amid(checkpoints(objects))
    assert chosen, "no checkpoint while timers fired"
    for checkpoint in chosen[: more_in_depth(3, 20)]:
        made = partial(job, kind, late=late)
        again = resumed(made, objects, sink, checkpoint, settings(parallelism))
        assert by_key(again) == by_key(sink)


@pytest.mark.parametrize("kind", ["tumbling", "sliding", "timers"])
def test_records_are_handled_between_the_timers_of_one_moment(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_steps(monkeypatch, 1)
    EVENTS.clear()
    run(kind, settings(), late=False)
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


@in_pairs(kind=[*JOINS, "newest row"], parallelism=[1, 2], late=[True, False])
def test_joins_are_whole_and_once(
    kind: str, parallelism: int, late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_steps(monkeypatch, 1)
    sink, objects = run(kind, settings(), late=late)
    check_join(kind, sink, late=late)
    for checkpoint in checkpoints(objects)[:: more_in_depth(2, 1)]:
        made = partial(job, kind, late=late)
        again = resumed(made, objects, sink, checkpoint, settings(parallelism))
        check_join(kind, again, late=late)


def check_join(kind: str, sink: Outside, *, late: bool) -> None:
    """What was joined is what there is of records that were not late."""
    too_late = Counter(record for _, what, record in sink.records if what == "late")
    assert not too_late or max(too_late.values()) == 1
    left, rows = inputs(kind, late=late).values()
    on_time, right = ([r for r in side if r not in too_late] for side in (left, rows))
    found = Counter(record for record in sink.records if record[1] != "late")
    if kind != "newest row":
        assert found == Counter(pairs(kind, on_time, right))
    elif late:
        assert found == Counter((r.key, r, newest_at(r, rows)) for r in on_time)
    else:
        assert found <= Counter((r.key, r, newest_at(r, rows)) for r in left)


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
