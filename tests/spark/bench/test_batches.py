"""Applications of the benchmarks run, and count what each state store asks of the object store."""

from pathlib import Path

import pytest

from tidelog_bench.experiment import Cell, Reading, Size, Trial
from tidelog_bench.experiments import spark_commit, spark_restore
from tidelog_bench.session.children import in_child
from tidelog_bench.spark.job import STORES

pytestmark = pytest.mark.usefixtures("spark_or_skip")

ALL_QUERIES = {
    "queries": ",".join(spark_commit.TITLES),
    "partitions": 2,
    "latency_ms": 0,
    "warm": 2,
    "batches": 4,
    "limit_s": 600,
}


def trial(cell: Cell, variant: str, directory: Path, **smaller: object) -> Trial:
    return Trial({**cell.settings, **smaller}, variant, 1, directory)  # type: ignore[dict-item]


def commits(variant: str, directory: Path) -> Reading:
    cell = spark_commit.cells(Size.QUICK)[0]
    return in_child(spark_commit.measure, trial(cell, variant, directory, **ALL_QUERIES))


def puts(reading: Reading, query: str) -> dict[str, float]:
    return reading.notes[query]["requests_per_batch"]["put"]


def test_spark_writes_a_changelog_per_store_and_batch(tmp_path: Path) -> None:
    found = commits("changelog", tmp_path)
    stores = {"aggregation": 2, "window": 2, "join": 8, "transform": 2, "long_keys": 2}
    for query, count in stores.items():
        assert puts(found, query)["changelog"] == count
        assert puts(found, query)["offsets"] == puts(found, query)["commits"] == 1
        assert found.figures[f"{query}_batches"] == 4
        assert len(found.series[f"{query}_batch_ms"]) == 4
    assert found.notes["aggregation"]["state_rows"] == 20_011
    assert found.notes["transform"]["state_rows"] == 1_000  # 500 keys, then 500 others: 2 x 500
    assert found.figures["long_keys_uploaded_kb_per_batch"] > 20_000  # 10 MB for each of two stores


def test_the_plug_in_writes_a_segment_per_batch(tmp_path: Path) -> None:
    found = commits("tidelog", tmp_path)
    for query in spark_commit.TITLES:
        assert "changelog" not in puts(found, query)
        assert puts(found, query)["segment"] >= 1
        # The one with the long keys writes more than fits into a segment.
        assert puts(found, query)["segment"] < 2 or query == "long_keys"
        uploaded = sum(kb for _, kb in found.series[f"{query}_uploaded_kb"])
        assert uploaded == pytest.approx(
            4 * found.figures[f"{query}_uploaded_kb_per_batch"], abs=0.01
        )


def test_the_rocksdb_store_uploads_an_archive_per_store_and_batch(tmp_path: Path) -> None:
    found = commits("rocksdb", tmp_path)
    assert puts(found, "aggregation")["zip"] == 2
    assert puts(found, "join")["zip"] == 8


def test_the_hdfs_backed_store_says_that_it_has_no_transform_with_state(tmp_path: Path) -> None:
    found = commits("hdfs", tmp_path)
    assert puts(found, "aggregation")["state"] == 2
    assert "transformWithState" in found.notes["transform"]["skipped"]
    assert not [name for name in found.figures if name.startswith("transform")]


@pytest.mark.parametrize("variant", STORES)
def test_a_restart_goes_on_where_the_query_was_stopped(variant: str, tmp_path: Path) -> None:
    [cell] = spark_restore.cells(Size.QUICK)
    smaller = {"partitions": 2, "last_batch": 3, "latency_ms": 0}
    found = in_child(spark_restore.measure, trial(cell, variant, tmp_path, **smaller))
    written = found.notes["requests"]["put"]
    assert written["offsets"] == written["commits"] == 1
    assert 0 < found.figures["downloaded_mb"] <= 3 * found.figures["stored_mb"]


def test_the_bill_counts_the_changelogs_of_ten_executors(tmp_path: Path) -> None:
    cell = spark_commit.cells(Size.QUICK)[1]
    smaller = {"partitions": 2, "warm": 1, "batches": 4}
    found = in_child(spark_commit.measure, trial(cell, "changelog", tmp_path, **smaller))
    per_batch = found.notes["requests_per_batch"]["put"]
    assert per_batch["changelog"] == 20
    assert per_batch["commits"] == 1
    assert found.notes["dollars_by_class"]["changelog"] == 8.64  # 20 x 86,400 x 0.005 / 1000
