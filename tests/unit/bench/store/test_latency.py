"""Latencies are drawn from S3's shape: seeded, independent of order, the same everywhere."""

from itertools import pairwise

import pytest

from tests.golden.golden_latencies import bits, golden_bits
from tidelog_bench.store.latency import SHARES, TABLE, Kind, latency_ms

DRAWS = 40_000


def draws(kind: Kind, seed: int = 1, count: int = DRAWS) -> list[float]:
    return [latency_ms(30.0, seed, kind, number) for number in range(count)]


def test_the_draws_are_those_of_the_golden_file_bit_for_bit() -> None:
    golden = golden_bits()
    assert len(golden) == 450
    assert {draw: bits(draw) for draw in golden} == golden


@pytest.mark.parametrize("kind", Kind)
def test_each_point_of_the_table_has_its_share_of_the_draws_below_it(kind: Kind) -> None:
    found = draws(kind)
    for share, limit in zip(SHARES, TABLE[kind], strict=True):
        below = sum(ms < limit for ms in found) / DRAWS
        assert below == pytest.approx(share, abs=0.01 if share < 0.99 else 0.002)


def test_the_median_of_put_is_what_was_asked_for() -> None:
    assert TABLE[Kind.PUT][SHARES.index(0.5)] == 30.0


@pytest.mark.parametrize("kind", Kind)
def test_latencies_rise_in_the_table_and_scale_with_the_median(kind: Kind) -> None:
    assert all(low < high for low, high in pairwise(TABLE[kind]))
    once, doubled = (
        [latency_ms(median, 1, kind, number) for number in range(100)] for median in (30.0, 60.0)
    )
    assert doubled == pytest.approx([2 * ms for ms in once])


def test_seeds_and_kinds_give_sequences_of_their_own() -> None:
    sequences = [tuple(draws(kind, seed, 50)) for kind in Kind for seed in (1, 2)]
    assert len(set(sequences)) == len(sequences)
    shares = [latency_ms(30.0, 1, kind, 0) for kind in (Kind.PUT, Kind.DELETE)]
    assert shares[0] != shares[1]
