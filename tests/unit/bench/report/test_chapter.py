"""What a chapter takes from which session, and what it lacks."""

from collections.abc import Sequence

from tests.support.bench_sessions import cell, experiment, five, pair, session, trial
from tidelog_bench.measurement import Cell
from tidelog_bench.report.chapter import Chapter, LoadedSession, chapters
from tidelog_bench.report.verdict import Verdict, headline
from tidelog_bench.session.records import Record, SkipRecord

SHORT = cell(job="word-count", key_bytes=16)
LONG = cell(job="word-count", key_bytes=200)


def told(
    records: Sequence[Record], planned: Sequence[Cell] = (), **changes: object
) -> LoadedSession:
    first = session(**changes)  # type: ignore[arg-type]
    return LoadedSession(first, [first, *records], {"checkpoints": planned})


def chapter(*of: LoadedSession) -> Chapter:
    (found,) = chapters(of, [experiment()])
    return found


def test_a_complete_session_lacks_nothing() -> None:
    assert chapter(told(five([1] * 5, [2] * 5, of=SHORT), [SHORT])).missing == []


def test_a_cell_without_trials_and_a_pair_without_a_variant_are_missing() -> None:
    records = five([1] * 5, [2] * 5, of=SHORT)[:-1]
    found = chapter(told(records, [SHORT, LONG]))
    assert found.missing == ["4 of 5 pairs of key 16 bytes", "0 of 5 pairs of key 200 bytes"]


def test_a_skipped_variant_is_not_missing() -> None:
    ran = [trial("on", number, {"p99_ms": 1.0}, SHORT) for number in range(5)]
    skip = SkipRecord("checkpoints", "off", "not installed")
    assert chapter(told([*ran, skip], [SHORT])).missing == []
    assert chapter(told(ran, [SHORT])).missing == ["0 of 5 pairs"]


def test_cells_that_the_library_no_longer_plans_are_not_called_missing() -> None:
    now = cell(job="word-count", key_bytes=32)
    assert chapter(told(five([1] * 5, [2] * 5, of=SHORT), [now])).missing == []


def test_the_newest_session_that_measured_it_is_told() -> None:
    old = told(five([1] * 5, [2] * 5), session="old", started="2026-01-01T00:00:00+00:00")
    new = told(five([1] * 5, [9] * 5), session="new", started="2026-02-01T00:00:00+00:00")
    other = told([], session="other", started="2026-03-01T00:00:00+00:00")
    for order in ([old, new, other], [other, new, old]):
        found = chapter(*order)
        assert found.session.session == "new"
        assert found.answer.cells[0].figures["off"]["p99_ms"]["median"] == 9


def test_a_headline_spans_all_cells_and_says_where_they_disagree() -> None:
    records = [*five([1] * 5, [2] * 5, of=SHORT), *five([4] * 5, [2, 2, 2, 2, 8], of=LONG)]
    line = headline(chapter(told(records)).answer)
    assert line is not None
    assert (line.ratio, line.figure.name) == ("on / off", "p99_ms")
    assert (line.median, line.low, line.high) == (1.25, 0.5, 2.0)
    assert line.verdict is None
    assert line.says == "1 better, 1 within noise"
    alike = headline(chapter(told(records[:10] + five([1] * 5, [3] * 5, of=LONG))).answer)
    assert alike is not None
    assert (alike.verdict, alike.says) == (Verdict.BETTER, "better in all 2 cells")


def test_there_is_no_headline_where_nothing_can_be_divided() -> None:
    assert headline(chapter(told([trial("on", 0, {"p99_ms": 1.0})])).answer) is None
    zero = told(pair(0, {"p99_ms": 1.0}, {"p99_ms": 0.0}))
    assert headline(chapter(zero).answer) is None
