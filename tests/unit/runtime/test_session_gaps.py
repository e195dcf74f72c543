"""Which records are in one session does not depend on how the input is cut into buffers."""

from operator import itemgetter
from random import Random
from typing import Any

import pytest

from tests.support.pipelines import Outside, Portions, config, run
from tidelog import Job, OutputTag, Session
from tidelog.storage.memory import MemoryStore

GAP = 100
LATE = OutputTag("late")
Record = tuple[str, int]


def emitted(
    records: list[Record], portion: int, kind: str = "count", lateness: int = 0
) -> tuple[list[Any], list[Any]]:
    """The sessions of records that are read so many at a time, and what was late."""
    job, sink, late = Job("made"), Outside(), Outside()
    source = Portions({"only": records}, portion=portion, pause=0.01)
    keyed = job.source(source).event_time(itemgetter(1)).key_by(itemgetter(0))
    windows = keyed.window(Session(GAP), late=LATE, allowed_lateness=lateness)
    counted = windows.count() if kind == "count" else windows.records(whole)
    counted.sink(sink)
    counted.side_output(LATE).sink(late, name="late")
    run(job, MemoryStore(), config(parallelism=1))
    return sink.records, late.records


def whole(key: str, start: int, end: int, records: list[Any]) -> tuple[str, int, int, int]:
    return key, start, end, len(records)


def ordered(count: int) -> list[Record]:
    """Records of a few keys in the order of time, many exactly a gap after the one before."""
    rng, moment, records = Random(3), 0, list[Record]()
    for _ in range(count):
        moment += rng.choice((0, 1, GAP // 2, GAP, GAP, GAP + 1))
        records.append((rng.choice("ab"), moment))
    return records


def sessions_of(records: list[Record]) -> list[tuple[str, int, int, int]]:
    made: list[tuple[str, int, int, int]] = []
    for key in "ab":
        times = [moment for other, moment in records if other == key]
        start, last, count = times[0], times[0], 0
        for moment in times:
            if moment - last > GAP:
                made.append((key, start, last + GAP, count))
                start, count = moment, 0
            last, count = moment, count + 1
        made.append((key, start, last + GAP, count))
    return sorted(made)


@pytest.mark.parametrize("kind", ["count", "records"])
@pytest.mark.parametrize("portion", [1, 7, 400])
def test_records_a_gap_apart_are_one_session_at_every_pace(portion: int, kind: str) -> None:
    records = ordered(400)
    fired, late = emitted(records, portion, kind)
    assert (sorted(fired), late) == (sessions_of(records), [])


def test_a_session_fires_when_nothing_can_join_it_any_more() -> None:
    records = [("k", 0), ("z", GAP), ("k", GAP), ("z", 2 * GAP), ("z", 2 * GAP + 1), ("k", 5_000)]
    fired, late = emitted(records, portion=1)
    assert [each for each in fired if each[0] == "k"] == [("k", 0, 200, 2), ("k", 5_000, 5_100, 1)]
    assert late == []


def test_a_record_below_the_watermark_is_late_unless_its_own_session_is_not_over() -> None:
    """Also where it is within the gap of a session that has fired, which is not there any more."""
    # The watermark is 250 when these come: (k, 0) has fired up to its end 150.
    behind = [("k", 50), ("z", 251), ("k", 150), ("k", 151)]
    fired, late = emitted(behind, portion=1)
    assert [each for each in fired if each[0] == "k"] == [("k", 50, 150, 1), ("k", 151, 251, 1)]
    assert late == [("k", 150)]


def test_within_the_allowed_lateness_it_joins_the_session_that_has_fired() -> None:
    behind = [("k", 50), ("z", 251), ("k", 150), ("k", 151)]
    fired, late = emitted(behind, portion=1, lateness=1_000)
    of_key = [each for each in fired if each[0] == "k"]
    # With the second record its end is ahead of the watermark, so that it fires there once more.
    assert of_key == [("k", 50, 150, 1), ("k", 50, 250, 2), ("k", 50, 251, 3)]
    assert late == []
