"""Workloads and settings: derived sizes, figures that no job can have, and how many keys differ."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.cost.model.workload import expected_distinct


def summed(keys: int, skew: float, draws: int) -> float:
    weights = [rank**-skew for rank in range(1, keys + 1)]
    total = sum(weights)
    return sum(1 - (1 - weight / total) ** draws for weight in weights)


@pytest.mark.parametrize("skew", [0.0, 0.3, 0.8, 1.0, 1.3, 2.5])
@pytest.mark.parametrize(("keys", "draws"), [(50, 400), (3_000, 1_000), (40_000, 200_000)])
def test_the_closed_form_is_the_sum_over_all_ranks(keys: int, draws: int, skew: float) -> None:
    assert expected_distinct(keys, skew, draws) == pytest.approx(
        summed(keys, skew, draws), rel=1e-4
    )


@given(
    keys=st.integers(1, 10**9), skew=st.floats(0, 3), draws=st.floats(0, 1e9), more=st.floats(1, 10)
)
def test_it_never_exceeds_draws_or_keys_and_grows_with_the_draws(
    keys: int, skew: float, draws: float, more: float
) -> None:
    found = expected_distinct(keys, skew, draws)
    assert 0 <= found <= min(keys, max(draws, 0)) * (1 + 1e-6)
    assert expected_distinct(keys, skew, draws * more) >= found * (1 - 1e-6)
