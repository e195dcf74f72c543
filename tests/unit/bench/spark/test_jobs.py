"""All stores of a pair get the same settings of Spark, but for those that choose the store."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tidelog.errors import TidelogError
from tidelog.spark.plugin.settings import CHANGELOG, FILE_MANAGER, FORMAT, PROVIDER
from tidelog_bench.experiment import Cell, Experiment, Size, Trial
from tidelog_bench.experiments import spark_commit, spark_restore
from tidelog_bench.spark import job as jobs
from tidelog_bench.spark.batches import Counts, Sum
from tidelog_bench.spark.job import STORES, Job, store_settings, unsupported

CHOOSE = {PROVIDER, CHANGELOG, FORMAT, FILE_MANAGER, "spark.plugins", "spark.jars"}


@pytest.fixture(autouse=True)
def _no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "benchmark_jar", lambda: Path("benchmark.jar"))
    monkeypatch.setattr(jobs, "plugin_jar", lambda **_: Path("plugin.jar"))


def settings_of(cell: Cell, variant: str) -> dict[str, str]:
    trial = Trial(cell.settings, variant, 7, Path("unused"))
    return trial.read(Job, store=variant).settings(Path("room"))


@pytest.mark.parametrize(
    "known", [spark_commit.EXPERIMENT, spark_restore.EXPERIMENT], ids=lambda known: known.name
)
def test_stores_differ_in_what_chooses_them_alone(known: Experiment) -> None:
    for cell in (cell for size in Size for cell in known.cells(size)):
        found = {variant: settings_of(cell, variant) for variant in cell.variants}
        common = [
            {k: v for k, v in of.items() if k not in CHOOSE and not k.startswith("spark.tidelog")}
            for of in found.values()
        ]
        assert all(one == common[0] for one in common)
        chosen = [{key: of.get(key) for key in CHOOSE} for of in found.values()]
        assert all(chosen.count(one) == 1 for one in chosen)


def test_a_cell_s_knobs_become_settings_of_spark_and_of_the_store() -> None:
    cell = spark_commit.cells(Size.QUICK)[0]
    settings = settings_of(cell, "changelog")
    assert settings["spark.sql.shuffle.partitions"] == "4"
    assert settings["spark.master"] == "local[*]"  # as many task slots as cores
    assert float(settings["spark.hadoop.fs.counted.latency.ms"]) == 30
    assert float(settings["spark.hadoop.fs.counted.mb.per.s"]) == 50
    assert settings["spark.hadoop.fs.counted.seed"] == "7"
    assert settings["spark.sql.streaming.stateStore.maintenanceInterval"] == "60000ms"
    # Snapshots below the plug-in are as rare as four maintenance intervals.
    assert settings_of(cell, "tidelog")["spark.tidelog.snapshot.interval"] == "240000ms"
    # A store without latency has no limit of bandwidth either.
    cell = next(c for c in spark_commit.cells(Size.FULL) if c.settings["latency_ms"] == 0)
    assert float(settings_of(cell, "hdfs")["spark.hadoop.fs.counted.mb.per.s"]) == 0


def test_spark_s_own_stores_write_atomic_files_with_one_put_and_run_all_queries_but_one() -> None:
    managers = [store_settings(store, dict)[FILE_MANAGER] for store in STORES[:-1]]
    assert managers == ["tidelog.benchmark.DirectPutCheckpointFileManager"] * 3
    gaps = [(s, q) for s in STORES for q in spark_commit.TITLES if unsupported(s, q) is not None]
    assert gaps == [("hdfs", "transform")]


def test_a_restart_is_told_from_a_query_that_began_anew() -> None:
    reported = [
        {
            "batchId": 13,
            "durationMs": {"triggerExecution": 321},
            "stateOperators": [
                {"customMetrics": {"rocksdbLoadLatencyMs": 6, "rocksdbPutLatency": 1}},
                {"customMetrics": {"rocksdbLoadLatencyMs": 4}},
            ],
        }
    ]
    counts = {("get", "sst"): Sum(3, 2_500_000)}
    found = spark_restore.reading(reported, 13, 1.25, counts, 7_000_000)
    assert found.figures == {
        "restore_ms": 1250.0,
        "first_batch_ms": 321.0,
        "requests": 3.0,
        "downloaded_mb": 2.5,
        "stored_mb": 7.0,
    }
    assert found.notes["stores_ms"] == {"rocksdbLoadLatencyMs": 10}
    with pytest.raises(TidelogError, match="batch 12 as its first"):
        spark_restore.reading(reported, 12, 1.25, counts, 7_000_000)


class Slow:
    """An application whose query has made `within` batches when its time has passed."""

    def __init__(self, within: int) -> None:
        self.made = 0
        self.within = within
        self.ends: list[int] = []

    @contextlib.contextmanager
    def query(self, name: str, checkpoint: Path, last: int) -> Iterator[Any]:
        self.ends.append(last)
        yield self

    @property
    def lastProgress(self) -> dict[str, int]:
        return {"batchId": self.made - 1}

    @property
    def recentProgress(self) -> list[dict[str, int]]:
        return [{"batchId": batch} for batch in range(self.made)]

    def await_batch(self, query: Any, batch: int, timeout_s: float = 1e9) -> bool:
        self.made = max(self.made, batch + 1 if timeout_s == 1e9 else min(batch + 1, self.within))
        return self.made > batch

    def end_after(self, last: int) -> None:
        self.ends.append(last)

    def counts_at(self, batch: int) -> Counts:
        return {("put", "changelog"): Sum(8 * (batch + 1), 100 * (batch + 1))}

    def cpu_ms_at(self, batch: int) -> float:
        return 50.0 * batch


@pytest.mark.parametrize(
    ("within", "last", "ends"),
    [
        (100, 24, [24]),  # in time: all of them
        (12, 12, [24, 12]),  # the batch that runs when time has passed is the last
        (5, 7, [24, 7]),  # three at least
    ],
)
def test_batches_are_measured_from_the_warm_up_to_the_end_of_the_time(
    within: int, last: int, ends: list[int], tmp_path: Path
) -> None:
    pytest.importorskip("pyspark")
    from tidelog_bench.spark.application import Batches  # noqa: PLC0415

    slow = Slow(within)
    found = Batches(warm=5, batches=20, limit_s=3.0).measure(slow, "join", tmp_path)  # type: ignore[arg-type]
    assert [one["batchId"] for one in found.progress] == list(range(5, last + 1))
    assert slow.ends == ends
    batches = last - 5 + 1
    assert found.counts == {("put", "changelog"): Sum(8 * batches, 100 * batches)}
    assert found.cpu_ms == 50.0 * batches
