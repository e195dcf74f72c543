"""Ten executors make ten times the requests of one, but the query writes its commits once."""

import pytest

from tidelog_bench.experiments.spark_bill import by_class, cells, scaled
from tidelog_bench.measurement import Size
from tidelog_bench.spark.batch_window import dollars
from tidelog_bench.spark.counts import Sum, parse_counts

ONE = parse_counts("delete changelog 7 0\nget sst 3 30\nput changelog 20 200\nput commits 2 60")


def test_what_executors_do_is_scaled_and_what_the_query_does_is_not() -> None:
    assert scaled(ONE, 10) == {
        ("delete", "changelog"): Sum(70, 0),
        ("get", "sst"): Sum(30, 300),
        ("put", "changelog"): Sum(200, 2000),
        ("put", "commits"): Sum(2, 60),
    }


def test_dollars_by_class_of_file_add_up_to_the_bill() -> None:
    whole = scaled(ONE, 10)
    assert sum(by_class(whole, 2).values()) == pytest.approx(dollars(whole, 2), abs=0.02)
    assert by_class(whole, 2)["changelog"] == 43.2  # 100 PUTs per batch x 86,400 x 0.005 / 1000


@pytest.mark.parametrize("size", Size)
def test_maintenance_is_as_rare_in_batches_as_a_minute_at_a_batch_a_second(size: Size) -> None:
    for cell in cells(size):
        found = cell.settings
        batches = int(found["batches"] or 0) if size is Size.QUICK else 60
        assert found["maintenance_ms"] == batches * int(found["trigger_ms"] or 0)
        assert int(found["partitions"] or 0) * int(found["executors"] or 0) == 200
