"""Spark's own stores among the systems of the word count."""

from pathlib import Path

import pytest

from tidelog_bench.experiment import Trial
from tidelog_bench.experiments import peers

pytestmark = pytest.mark.usefixtures("spark_or_skip")

SMALL = {
    "keys": 300,
    "key_bytes": 16,
    "skewed": False,
    "draws": 5000,
    "warm_s": 0.0,
    "seconds": 0.0,
    "checkpoint_s": 0.1,
    "batch_words": 2000,
}


@pytest.mark.parametrize("variant", ["spark-rocksdb", "spark-hdfs"])
def test_a_store_of_spark_counts_right_as_its_checkpoint_tells(
    variant: str, tmp_path: Path
) -> None:
    found = peers.measure(Trial(SMALL, variant, 3, tmp_path))

    assert found.figures["commits"] == 1, "no time to wait for: from one commit to the next"
    assert found.figures["records"] in {1000, 2000}
    assert found.figures["cpu_us_per_record"] > 0
    assert found.figures["durable_mb"] > 300 * 16 / 1e6
    assert found.notes["versions"]["pyspark"]
