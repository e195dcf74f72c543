"""What records say to an experiment."""

from tests.support.bench_sessions import cell, experiment, five, pair, session, trial
from tidelog_bench.report.answer import answer
from tidelog_bench.session.records import FailureRecord, Record, SkipRecord

SHORT = cell(job="word-count", key_bytes=16)
LONG = cell(job="word-count", key_bytes=200)


def failed(variant: str, of_pair: int) -> FailureRecord:
    return FailureRecord("checkpoints", dict(SHORT.settings), variant, of_pair, "Trace\nno disk")


def test_cells_are_told_apart_by_the_settings_in_which_they_differ() -> None:
    records = [
        *pair(0, {"p99_ms": 1}, {"p99_ms": 2}, LONG),
        *pair(0, {"p99_ms": 3}, {"p99_ms": 4}, SHORT),
    ]
    found = answer(experiment(), [session(), *records])
    assert [of.label for of in found.cells] == ["key 200 bytes", "key 16 bytes"]
    assert found.common == {"job": "word-count"}
    assert found.cells[1].figures["off"]["p99_ms"]["median"] == 4


def test_a_setting_that_only_some_cells_have_is_not_common() -> None:
    bare = cell(job="word-count")
    found = answer(
        experiment(), [*pair(0, {"a": 1}, {"a": 1}, bare), *pair(0, {"a": 1}, {"a": 1}, SHORT)]
    )
    assert found.common == {"job": "word-count"}
    assert [of.label for of in found.cells] == ["", "key 16 bytes"]


def test_variants_keep_the_order_of_the_first_pair_though_every_other_is_reversed() -> None:
    records = five([1] * 5, [2] * 5)
    found = answer(experiment(), records[::-1])
    assert found.variants == ["on", "off"]
    assert found.cells[0].ratios["on / off"]["p99_ms"]["pairs"] == [0.5] * 5


def test_trials_of_other_measurements_do_not_count() -> None:
    other = experiment(measurement=experiment().measurement.__class__("else", lambda size: [], len))
    assert answer(other, five([1] * 5, [2] * 5)).cells == []


def test_a_failure_that_was_made_good_is_forgotten() -> None:
    records: list[Record] = [failed("on", 0), failed("off", 0), trial("on", 0, {"a": 1}, SHORT)]
    assert [failure.variant for failure in answer(experiment(), records).failures] == ["off"]


def test_a_variant_is_skipped_unless_it_ran_in_the_end() -> None:
    gap = SkipRecord("checkpoints", "off", "no off here")
    again = SkipRecord("checkpoints", "off", "still no off here")
    elsewhere = SkipRecord("else", "on", "no on there")
    records: list[Record] = [gap, elsewhere, trial("on", 0, {"a": 1}), again]
    assert answer(experiment(), records).skipped == [again]
    assert answer(experiment(), [*records, trial("off", 0, {"a": 1})]).skipped == []


def test_only_figures_that_a_trial_gave_are_present() -> None:
    found = answer(experiment(), [trial("on", 0, {"p90_ms": 1.0, "p99_ms": 1.0})])
    assert [f.name for f in found.present(experiment().figures)] == ["p99_ms", "p90_ms"]
