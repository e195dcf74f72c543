"""Applications of the benchmarks run, and count what each state store asks of the object store."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.bench_trials import trial_in
from tidelog_bench.experiment import Reading, Size
from tidelog_bench.experiments import spark_commit, spark_restore, stability
from tidelog_bench.session.children import Child, in_child
from tidelog_bench.spark.job import STORES

pytestmark = pytest.mark.usefixtures("spark_or_skip")

COMMITS = dict(spark_commit.cells(Size.QUICK)[0].settings) | {
    "partitions": 2,
    "latency_ms": 0,
    "warm": 2,
    "batches": 4,
}


@pytest.fixture(scope="module")
def process() -> Iterator[Child]:
    """One for all tests: an application after the other in one JVM, as in a quick session."""
    with Child(own_group=True) as child:
        yield child


def commits(process: Child, query: str, variant: str, room: Path) -> Reading:
    process.call(spark_commit.measure, trial_in(room, COMMITS | {"query": query}, variant))
    found: Reading = process.result()
    return found


def puts(reading: Reading) -> dict[str, float]:
    return reading.notes["requests_per_batch"]["put"]


def check_rows(reading: Reading, query: str) -> None:
    rows = {"aggregation": 20_011, "long_keys": 21_000}
    assert reading.notes["state_rows"] == rows.get(query, reading.notes["state_rows"])
    assert reading.figures["batches"] == 4


STORES_OF = {"aggregation": 2, "join": 8, "long_keys": 2}


@pytest.mark.parametrize("query", STORES_OF)
def test_spark_writes_a_changelog_per_store_and_batch(
    process: Child, query: str, tmp_path: Path
) -> None:
    found = commits(process, query, "changelog", tmp_path)
    assert puts(found)["changelog"] == STORES_OF[query]
    assert puts(found)["offsets"] == puts(found)["commits"] == 1
    check_rows(found, query)
    if query == "long_keys":
        assert found.figures["uploaded_kb_per_batch"] > 20_000  # 10 MB for each of two stores


@pytest.mark.parametrize("query", STORES_OF)
def test_the_plug_in_writes_a_segment_per_batch_at_most(
    process: Child, query: str, tmp_path: Path
) -> None:
    found = commits(process, query, "tidelog", tmp_path)
    assert "changelog" not in puts(found)
    check_rows(found, query)
    assert puts(found)["offsets"] == puts(found)["commits"] == 1
    # The two files of the query; the figure is in whole cents.
    assert found.figures["dollars_per_day"] >= round(86_400 * 2 * 0.005 / 1000, 2)
    if query == "long_keys":
        assert puts(found)["segment"] > 1  # more than fits into one
    else:
        # They lie in the commits, and in a segment of ten batches.
        assert puts(found).get("segment", 0) < 1
    assert found.figures["uploaded_kb_per_batch"] > 0


@pytest.mark.parametrize("variant", STORES)
def test_a_restart_goes_on_where_the_query_was_stopped(variant: str, tmp_path: Path) -> None:
    [cell] = spark_restore.cells(Size.QUICK)
    settings = dict(cell.settings) | {"partitions": 2, "last_batch": 3, "latency_ms": 0}
    found = in_child(spark_restore.measure, trial_in(tmp_path, settings, variant))
    written = found.notes["requests"]["put"]
    assert written["offsets"] == written["commits"] == 1
    assert 0 < found.figures["downloaded_mb"] <= 3 * found.figures["stored_mb"]


def test_the_bill_counts_the_changelogs_of_ten_executors(tmp_path: Path) -> None:
    cell = spark_commit.cells(Size.QUICK)[1]
    settings = dict(cell.settings) | {"partitions": 2, "warm": 1, "batches": 4}
    found = in_child(spark_commit.measure, trial_in(tmp_path, settings, "changelog"))
    assert puts(found)["changelog"] == 20
    assert puts(found)["commits"] == 1
    assert found.notes["dollars_by_class"]["changelog"] == 8.64  # 20 x 86,400 x 0.005 / 1000


@pytest.mark.parametrize("variant", ["spark-rocksdb", "spark-tidelog"])
def test_rows_of_a_steady_load_wait_for_their_batch(variant: str, tmp_path: Path) -> None:
    [cell] = stability.cells(Size.QUICK)
    settings = dict(cell.settings) | {"keys": 5_000, "batch_rows": 2_000, "latency_ms": 0.0}
    found = in_child(stability.measure, trial_in(tmp_path, settings, variant)).figures
    assert found["arriving_per_s"] == found["records_per_s"] * 0.95
    # The first row of a batch waits for the last one.
    assert found["late_max_ms"] >= 2_000 / found["arriving_per_s"] * 1e3
    assert found["late_max_ms"] > found["checkpoint_p50_ms"] > 0
    assert found["checkpoints"] > 0
