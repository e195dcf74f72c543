"""What the records of a session answer to an experiment."""

from collections.abc import Sequence

import pytest

from tests.support.bench_sessions import five, loaded, pair, trial
from tests.support.bench_toy import cell, experiment
from tidelog_bench.experiment import Better, Figure, Ratio
from tidelog_bench.report.answer import Answer, answer
from tidelog_bench.report.numbers import Verdict, ratios, verdict
from tidelog_bench.session.records import Record

SHORT = cell(job="word-count", key_bytes=16)
LONG = cell(job="word-count", key_bytes=200)


def answered(records: Sequence[Record], planned: Sequence[object] = ()) -> Answer:
    return answer(experiment(), loaded(records, planned))  # type: ignore[arg-type]


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
