"""What runs outside of deep runs leave out."""

from itertools import combinations, product
from pathlib import Path

import pytest

from tests.spark.conftest import IN_EVERY_RUN
from tests.support.depth import covering

CASES = list(product(range(3), range(2), range(4), range(2)))


@pytest.mark.parametrize("meeting", [1, 2, 3])
def test_so_many_values_meet_in_fewer_cases(meeting: int) -> None:
    chosen = covering(CASES, meeting)
    assert len(chosen) < len(CASES)
    for positions in combinations(range(4), meeting):
        met = {tuple(case[position] for position in positions) for case in chosen}
        assert met == {tuple(case[position] for position in positions) for case in CASES}


def test_no_more_values_than_meet_are_combined_in_full() -> None:
    cases = list(product(range(3), range(2)))
    assert sorted(covering(cases, 2)) == cases


def test_every_part_of_the_tests_with_spark_that_is_never_left_out_exists() -> None:
    spark = Path(__file__).parents[1] / "spark"
    assert [name for name in IN_EVERY_RUN if not any(spark.glob(name.rstrip("/") + "*"))] == []
