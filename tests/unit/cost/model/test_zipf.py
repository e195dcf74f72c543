"""The expected number of different keys: the closed form, against its sum and against draws."""

from itertools import accumulate
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.cost.model.workload import expected_distinct


def summed(keys: int, skew: float, draws: int) -> float:
    weights = [rank**-skew for rank in range(1, keys + 1)]
    total = sum(weights)
    return sum(1 - (1 - weight / total) ** draws for weight in weights)


def drawn(keys: int, skew: float, draws: int, rng: Random) -> int:
    weights = list(accumulate(rank**-skew for rank in range(1, keys + 1)))
    return len(set(rng.choices(range(keys), cum_weights=weights, k=draws)))


@pytest.mark.parametrize("skew", [0.0, 0.3, 0.8, 1.0, 1.3, 2.5])
@pytest.mark.parametrize(("keys", "draws"), [(50, 400), (3_000, 1_000), (40_000, 200_000)])
def test_the_closed_form_is_the_sum_over_all_ranks(keys: int, draws: int, skew: float) -> None:
    assert expected_distinct(keys, skew, draws) == pytest.approx(
        summed(keys, skew, draws), rel=1e-6
    )


@pytest.mark.parametrize("skew", [0.0, 0.7, 1.0, 1.4])
@pytest.mark.parametrize(("keys", "draws"), [(500, 2_000), (20_000, 15_000)])
def test_sampled_keys_are_as_many_as_the_closed_form_says(
    keys: int, draws: int, skew: float
) -> None:
    rng = Random(f"{keys} {draws} {skew}")
    samples = [drawn(keys, skew, draws, rng) for _ in range(20)]
    assert sum(samples) / len(samples) == pytest.approx(
        expected_distinct(keys, skew, draws), rel=0.02
    )


@given(
    keys=st.integers(1, 10**9),
    skew=st.floats(0, 3),
    draws=st.floats(0, 1e9),
    more=st.floats(1, 10),
)
def test_it_never_exceeds_draws_or_keys_and_grows_with_the_draws(
    keys: int, skew: float, draws: float, more: float
) -> None:
    found = expected_distinct(keys, skew, draws)
    assert 0 <= found <= min(keys, max(draws, 0)) * (1 + 1e-6)
    assert expected_distinct(keys, skew, draws * more) >= found * (1 - 1e-6)


def test_a_draw_of_many_keys_hits_one_and_half_a_draw_half() -> None:
    assert expected_distinct(1_000, 1.0, 1) == 1
    assert expected_distinct(1_000, 1.0, 0.5) == 0.5
    assert expected_distinct(1, 0.0, 1e6) == 1
