"""The shortest run of the benchmark of batches: one query below the plug-in."""

from pathlib import Path

from tests.spark.bench.test_batches import COMMITS
from tests.support.bench_trials import trial_in
from tidelog_bench.experiments import spark_commit
from tidelog_bench.session.children import Child


def test_a_batch_of_sessions_is_one_segment_and_one_commit_in_every_round(
    spark_or_skip: None, tmp_path: Path
) -> None:
    settings = COMMITS | {"query": "transform", "batches": 3}
    with Child() as process:
        for _ in range(2):
            process.call(spark_commit.measure, trial_in(tmp_path, settings, "tidelog"))
            found = process.result()
            puts = found.notes["requests_per_batch"]["put"]
            assert puts["segment"] == puts["offsets"] == puts["commits"] == 1
            assert found.figures["batches"] == len(found.series["batch_ms"]) == 3
            assert found.notes["state_rows"] in (500, 1_000)  # 500 keys, after four batches others
            assert found.figures["dollars_per_day"] > 86_400 * 3 * 0.005 / 1000
