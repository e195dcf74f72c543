"""What is beyond noise."""

import pytest

from tests.support.bench_sessions import five, pair
from tidelog_bench.experiment import Better, Figure, Ratio
from tidelog_bench.report.verdict import Verdict, verdict
from tidelog_bench.statistics import ratios


def of(on: list[float], off: list[float], better: Better = "lower") -> Verdict:
    found = ratios(five(on, off), [Ratio("on", "off")])
    return verdict(found["on / off"]["p99_ms"], Figure("p99_ms", "duration", "ms", better))


SLOW, FAST = [20.0, 21.0, 22.0, 23.0, 24.0], [10.0, 11.0, 12.0, 13.0, 23.9]


@pytest.mark.parametrize(
    ("better", "faster", "slower"),
    [
        ("lower", Verdict.BETTER, Verdict.WORSE),
        ("higher", Verdict.WORSE, Verdict.BETTER),
        ("neither", Verdict.DIFFERENT, Verdict.DIFFERENT),
    ],
)
def test_five_pairs_on_one_side_of_one_are_beyond_noise(
    better: Better, faster: Verdict, slower: Verdict
) -> None:
    assert of(FAST, SLOW, better) is faster
    assert of(SLOW, FAST, better) is slower


def test_one_pair_on_the_other_side_is_noise() -> None:
    assert of([*FAST[:4], 24.1], SLOW) is Verdict.NOISE
    assert not Verdict.NOISE.beyond_noise


def test_a_pair_that_is_exactly_even_is_noise_and_five_such_are_equal() -> None:
    assert of([*FAST[:4], SLOW[4]], SLOW) is Verdict.NOISE
    assert of(SLOW, SLOW) is Verdict.EQUAL


def test_four_pairs_are_too_few() -> None:
    records = [r for n in range(4) for r in pair(n, {"p99_ms": 1.0}, {"p99_ms": 9.0})]
    found = ratios(records, [Ratio("on", "off")])["on / off"]["p99_ms"]
    assert verdict(found, Figure("p99_ms", "duration", "ms")) is Verdict.FEW
