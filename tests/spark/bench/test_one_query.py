"""The shortest run of the benchmark of batches: one query below the plug-in."""

from pathlib import Path

from tidelog_bench.experiment import Size, Trial
from tidelog_bench.experiments import spark_commit
from tidelog_bench.session.children import in_child


def test_a_batch_of_sessions_is_one_segment_and_one_commit(
    spark_or_skip: None, tmp_path: Path
) -> None:
    cell = spark_commit.cells(Size.QUICK)[0]
    settings = dict(cell.settings) | {
        "queries": "transform",
        "partitions": 2,
        "latency_ms": 0,
        "warm": 1,
        "batches": 3,
        "limit_s": 600,
    }
    found = in_child(spark_commit.measure, Trial(settings, "tidelog", 1, tmp_path))
    puts = found.notes["transform"]["requests_per_batch"]["put"]
    assert puts["segment"] == puts["offsets"] == puts["commits"] == 1
    assert found.figures["transform_batches"] == len(found.series["transform_batch_ms"]) == 3
    assert found.notes["transform"]["state_rows"] == 500  # the keys of the first four batches
    assert found.figures["transform_dollars_per_day"] > 86_400 * 3 * 0.005 / 1000
