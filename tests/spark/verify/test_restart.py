"""What Spark does with damaged checkpoints, and that `tidelog spark check` says the same before."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from tests.spark.support.place import Place
from tests.spark.support.running import add, finish
from tests.spark.support.zoo.aggregations import TOTALS, totals_of
from tests.spark.support.zoo.query import events, single
from tests.support.cli import tidelog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.plugin_only

BATCHES = single(events(seed=1, batches=14, per_batch=20))


@pytest.fixture(scope="module")
def made(one_spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Thirteen batches with snapshots and clean-up, and one more to come."""
    place = Place(tmp_path_factory.mktemp("made"))
    add(place, BATCHES[:13])
    finish(one_spark.newSession(), TOTALS, place)
    # Its maintenance would go on: a copy needs a checkpoint that no longer changes.
    forget_stores(one_spark)
    add(place, BATCHES[13:])
    return place


def without(*names: str) -> Callable[[Path], None]:
    def change(checkpoint: Path) -> None:
        for name in names:
            path = checkpoint / name
            path.unlink()
            (path.parent / f".{path.name}.crc").unlink(missing_ok=True)

    return change


def version(commit: str, number: bytes) -> Callable[[Path], None]:
    def change(checkpoint: Path) -> None:
        path = checkpoint / commit
        path.write_bytes(number + path.read_bytes()[2:])
        (path.parent / f".{path.name}.crc").unlink()

    return change


def without_newest_snapshots(checkpoint: Path) -> None:
    for store in (checkpoint / "state" / "0").glob("[0-9]*"):
        newest = max(store.glob("*.zip"), key=lambda file: int(file.name.partition("_")[0]))
        newest.unlink()


CHANGES: dict[str, Callable[[Path], None]] = {
    "nothing": lambda _: None,
    "no metadata": without("metadata"),
    "no newest offsets": without("offsets/12"),
    "no offsets before": without("offsets/11"),
    "one ahead": without("commits/12"),
    "two ahead": without("commits/12", "commits/11"),
    "version 1": version("commits/12", b"v1"),
    "version 3": version("commits/12", b"v3"),
    "no newest log of the source": without("sources/0/12"),
    "no newest snapshots": without_newest_snapshots,
}


@pytest.mark.parametrize("case", CHANGES)
def test_spark_check_says_before_what_spark_does(
    case: str, made: Place, one_spark: "SparkSession", tmp_path: Path
) -> None:
    place = Place(tmp_path, input_root=made.root)
    shutil.copytree(made.checkpoint, place.checkpoint)
    shutil.copytree(made.written, place.written)
    CHANGES[case](place.checkpoint)
    checked = tidelog("spark", "check", place.checkpoint)
    forget_stores(one_spark)
    try:
        finish(one_spark.newSession(), TOTALS, place)
    except PySparkException:
        runs = False
    else:
        runs = True
        assert TOTALS.result(place.rows()) == totals_of(BATCHES)
    assert (checked.exit_code == 0) == runs, checked.stdout


def forget_stores(spark: "SparkSession") -> None:
    """What an earlier run of the query has loaded is of no use to the next."""
    jvm: Any = spark._jvm
    jvm.org.apache.spark.sql.execution.streaming.state.StateStore.stop()
