"""The ways in which the benchmarks read a log give the same rows: all changes, each once."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tidelog.errors import InvariantError
from tidelog_bench.embedded.run import measure
from tidelog_bench.embedded.workload import Workload
from tidelog_bench.experiments import changes_view
from tidelog_bench.measurement import Trial

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORDS = Workload(200, 16, draws=1_000)
SETTINGS: dict[str, Any] = asdict(WORDS) | {"records": 1_000, "reads": 1, "cores": 2}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """The log of a job that has counted 1,200 words."""
    trial = Trial(SETTINGS, "tidelog", 1, tmp_path)
    measure(changes_view.log_spec(trial), store=tmp_path / "store")
    return tmp_path / "store"


def test_each_way_reads_every_change_of_the_job_once(
    spark: "SparkSession", store: Path, tmp_path: Path
) -> None:
    from tidelog_bench.spark import changes  # noqa: PLC0415  (pyspark)

    changes.register(spark)
    found = [
        changes.read(changes.source(spark, variant, store, tmp_path / "parquet"))
        for variant in changes_view.VARIANTS
    ]
    same = [{name: read[name] for name in ("changes", "mb", "seqnos")} for read in found]
    assert same[0] == same[1] == same[2]
    count = same[0]["changes"]
    assert WORDS.keys <= count <= 1_200 + 2048
    reading = changes_view.reading(found[0], found)
    assert reading.figures["changes"] == count


def test_rows_that_miss_a_change_are_no_reading() -> None:
    read = {"changes": 3.0, "mb": 0.1, "seconds": 1.0, "seqnos": 0.0 + 1.0 + 3.0}
    with pytest.raises(InvariantError, match="changes 0 to 2, each once"):
        changes_view.reading(read, [read])
