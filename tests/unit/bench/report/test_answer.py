"""What records say to an experiment, and what a session lacks.

Numbers and settings as people read them.
"""

from collections.abc import Sequence

import pytest

from tests.support.bench_sessions import cell, experiment, five, loaded, pair, trial
from tidelog_bench.experiment import Better, Figure, Ratio
from tidelog_bench.report.answer import Answer, answer, answers
from tidelog_bench.report.numbers import number, setting, span, times
from tidelog_bench.report.statistics import Verdict, ratios, verdict
from tidelog_bench.session.records import FailureRecord, Record, SkipRecord

SHORT = cell(job="word-count", key_bytes=16)
LONG = cell(job="word-count", key_bytes=200)


def failed(variant: str, of_pair: int) -> FailureRecord:
    return FailureRecord(
        experiment="durations",
        settings=dict(SHORT.settings),
        variant=variant,
        pair=of_pair,
        error="Trace\nno disk",
    )


def skip(variant: str, reason: str = "not installed", name: str = "durations") -> SkipRecord:
    return SkipRecord(experiment=name, variant=variant, reason=reason)


def answered(records: Sequence[Record], planned: Sequence[object] = ()) -> Answer:
    return answer(experiment(), loaded(records, planned))  # type: ignore[arg-type]


def test_cells_are_told_apart_by_the_settings_in_which_they_differ() -> None:
    bare = cell(job="word-count")
    found = answered(
        [
            *pair(0, {"p99_ms": 1}, {"p99_ms": 2}, LONG),
            *pair(0, {"p99_ms": 3}, {"p99_ms": 4}, SHORT),
            *pair(0, {"p99_ms": 5}, {"p99_ms": 6}, bare),
        ]
    )
    assert [of.label for of in found.cells] == ["key 200 bytes", "key 16 bytes", ""]
    assert found.common == {"job": "word-count"}
    assert found.cells[1].medians["off"]["p99_ms"]["median"] == 4


def test_variants_keep_the_order_of_the_first_pair_and_ratios_are_of_pairs() -> None:
    found = answered(five([1, 2, 3, 4, 5], [2, 4, 6, 8, 10])[::-1])
    assert found.variants == ["on", "off"]
    assert found.cells[0].ratios["on / off"]["p99_ms"]["pairs"] == [0.5] * 5
    other = answered([trial("on", 0, {"p90_ms": 1.0, "p99_ms": 1.0})])
    assert [figure.name for figure in other.cells[0].figures] == ["p99_ms", "p90_ms"]
    assert answer(experiment("else"), loaded(five([1] * 5, [2] * 5))).cells == []


def test_a_failure_that_was_made_good_and_a_skip_that_ran_are_forgotten() -> None:
    records: list[Record] = [failed("on", 0), failed("off", 0), trial("on", 0, {"a": 1}, SHORT)]
    assert [failure.variant for failure in answered(records).failures] == ["off"]
    again = skip("off", "still no off here")
    gaps: list[Record] = [skip("off"), skip("on", name="else"), trial("on", 0, {"a": 1}), again]
    assert answered(gaps).skipped == [again]
    assert answered([*gaps, trial("off", 0, {"a": 1})]).skipped == []


def test_a_cell_without_trials_and_a_pair_without_a_variant_are_missing() -> None:
    whole = five([1] * 5, [2] * 5, of=SHORT)
    assert answered(whole, [SHORT]).missing == []
    assert answered(whole[:-1], [SHORT, LONG]).missing == [
        "4 of 5 pairs of key 16 bytes",
        "0 of 5 pairs of key 200 bytes",
    ]
    ran = [trial("on", number, {"p99_ms": 1.0}, SHORT) for number in range(5)]
    assert answered([*ran, skip("off")], [SHORT]).missing == []
    assert answered(ran, [SHORT]).missing == ["0 of 5 pairs"]
    # Cells that the library no longer plans are not called missing.
    assert answered(whole, [cell(job="word-count", key_bytes=32)]).missing == []


def test_an_answer_is_that_of_the_newest_session_that_measured_it() -> None:
    old = loaded(five([1] * 5, [2] * 5), session="old", started="2026-01-01T00:00:00+00:00")
    new = loaded(five([1] * 5, [9] * 5), session="new", started="2026-02-01T00:00:00+00:00")
    other = loaded([], session="other", started="2026-03-01T00:00:00+00:00")
    for order in ([old, new, other], [other, new, old]):
        (found,) = answers(order, [experiment()])
        assert found.session.session == "new"
        assert found.cells[0].medians["off"]["p99_ms"]["median"] == 9


def test_a_headline_spans_all_cells_and_says_where_they_disagree() -> None:
    records = [*five([1] * 5, [2] * 5, of=SHORT), *five([4] * 5, [2, 2, 2, 2, 8], of=LONG)]
    (line,) = answered(records).headlines
    assert (line.ratio, line.figure.name) == ("on / off", "p99_ms")
    assert (line.median, line.min, line.max) == (1.25, 0.5, 2.0)
    assert (line.kind, line.says) == ("mixed", "1 better, 1 within noise")
    (alike,) = answered(records[:10] + five([1] * 5, [3] * 5, of=LONG)).headlines
    assert (alike.kind, alike.says) == ("better", "better in all 2 cells")
    # There is none where nothing can be divided.
    assert answered([trial("on", 0, {"p99_ms": 1.0})]).headlines == []
    assert answered(pair(0, {"p99_ms": 1.0}, {"p99_ms": 0.0})).headlines == []


SLOW, FAST = [20.0, 21.0, 22.0, 23.0, 24.0], [10.0, 11.0, 12.0, 13.0, 23.9]


@pytest.mark.parametrize(
    ("on", "off", "better", "said"),
    [
        (FAST, SLOW, "lower", Verdict.BETTER),
        (SLOW, FAST, "lower", Verdict.WORSE),
        (FAST, SLOW, "higher", Verdict.WORSE),
        (SLOW, FAST, "higher", Verdict.BETTER),
        (FAST, SLOW, "neither", Verdict.DIFFERENT),
        ([*FAST[:4], 24.1], SLOW, "lower", Verdict.NOISE),  # one pair on the other side of 1
        ([*FAST[:4], 24.0], SLOW, "lower", Verdict.NOISE),  # one pair that is exactly even
        (SLOW, SLOW, "lower", Verdict.EQUAL),
    ],
)
def test_five_pairs_on_one_side_of_one_are_beyond_noise(
    on: list[float], off: list[float], better: Better, said: Verdict
) -> None:
    records, figure = five(on, off), Figure("p99_ms", "duration", "ms", better)
    found = ratios(records, [Ratio("on", "off")])["on / off"]["p99_ms"]
    assert verdict(found, figure) is said
    four = ratios(records[:8], [Ratio("on", "off")])["on / off"]["p99_ms"]
    assert verdict(four, figure) is Verdict.FEW


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (1, "1"),
        (7.0, "7"),
        (12.345, "12.3"),
        (0.12345, "0.123"),
        (999.96, "1,000"),
        (1234567.8, "1,234,568"),
        (-0.5, "-0.5"),
        (1e-12, "1e-12"),
        (float("inf"), "inf"),
    ],
)
def test_a_number_keeps_three_significant_digits(value: float, text: str) -> None:
    assert number(value) == text


def test_a_span_is_shown_of_values_that_differ_only() -> None:
    assert span({"median": 2.0, "min": 1.0, "max": 3.0, "n": 2}) == "1\N{EN DASH}3"
    assert span({"median": 2.0, "min": 2.0, "max": 2.0, "n": 1}) == ""
    assert times(0.1234) == "0.123x"


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("latency_ms", 30.0, "latency 30 ms"),
        ("mb_per_s", 50, "50 MB/s"),
        ("read_mb_per_s", 50, "read 50 MB/s"),
        ("records_per_s", 60_000, "records 60,000 /s"),
        ("seconds", 5, "seconds 5"),
        ("key_bytes", 16, "key 16 bytes"),
        ("job", "word-count", "job word-count"),
        ("filled", True, "filled yes"),
        ("link", None, "no link"),
    ],
)
def test_a_setting_is_written_with_its_unit(name: str, value: object, text: str) -> None:
    assert setting(name, value) == text  # type: ignore[arg-type]
