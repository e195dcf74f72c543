"""The summary on a terminal."""

from tests.support.bench_sessions import cell, experiment, five, pair, session, trial
from tidelog_bench.experiment import Figure
from tidelog_bench.report.terminal import WIDTH, summary
from tidelog_bench.session.records import FailureRecord, Record, SkipRecord


def test_medians_come_with_their_span_and_ratios_with_their_verdict() -> None:
    records = [session(), *five([10, 11, 12, 13, 14], [20, 21, 22, 23, 24])]
    text = summary(records, [experiment()])
    assert text[0] == "durations: How long durations take"
    assert text[1].split() == ["on", "off", "on", "/", "off"]
    assert text[2][3:].split("  ") == [
        "duration p99 ms",
        "12 (10\N{EN DASH}14)",
        "22 (20\N{EN DASH}24)",
        "0.545x (0.5\N{EN DASH}0.583)*",
    ]


def test_one_pair_has_no_span_and_says_that_it_means_little() -> None:
    text = summary([session(pairs=1), *pair(0, {"p99_ms": 5}, {"p99_ms": 2})], [experiment()])
    assert text[2].split() == ["duration", "p99", "ms", "5", "2", "2.5x"]
    assert text[-1].endswith("the numbers mean little")


def test_what_is_missing_is_said() -> None:
    records: list[Record] = [
        session(),
        SkipRecord("checkpoints", "off", "install " + "it " * 60),
        FailureRecord("checkpoints", {}, "on", 2, "Traceback\nOSError: no space"),
    ]
    text = summary(records, [experiment()])
    assert "  on, pair 3: FAILED, OSError: no space" in text
    assert text[1].startswith("  off: skipped, install it it")
    assert summary([session()], [experiment()]) == ["nothing has been measured yet"]


def test_no_line_is_wider_than_the_terminal_and_no_figure_is_lost() -> None:
    wide = [cell(job="a job with a name " * 6, parallelism=at) for at in (1, 200)]
    figures = [Figure(f"f{at}", f"a long title of a figure {at}", "records/s") for at in range(4)]
    values = {f"f{at}": 1e8 + at for at in range(4)}
    other = {f"f{at}": 3e8 + at for at in range(4)}
    records = [
        record
        for of in wide
        for number in range(5)
        for record in (
            *pair(number, values, other, of),
            trial("a variant " * 9, number, values, of),
        )
    ]
    text = summary([session(), *records], [experiment(figures=figures)])
    assert max(map(len, text)) <= WIDTH
    for at in range(4):
        assert sum(line.count(f" {1e8 + at:,.0f}") for line in text) == 4
