"""Checkpoint directories that are removed, set back and copied within one session.

Every story lets somebody do so between two runs of a query, and asserts after every run that the
rows written and the state stored are those of the input.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.support.place import Place
from tests.spark.support.running import add, finish
from tests.spark.support.zoo.aggregations import TOTALS
from tests.spark.support.zoo.query import Batch, by_key, events, single
from tests.support.depth import more_in_depth

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.plugin_only


def input_of(seed: int) -> list[Batch]:
    return single(events(seed, batches=24, per_batch=12))


@dataclass
class Query:
    """A query that counts, with an input of its own."""

    spark: "SparkSession"
    place: Place
    batches: list[Batch]
    done: int = 0

    def run(self, checkpoint: str, batches: int) -> None:
        """Some more batches, and the state as it is then stored."""
        add(self.place, self.batches[self.done : self.done + batches])
        self.done += batches
        finish(self.spark.newSession(), TOTALS, self.place, checkpoint)
        expected = TOTALS.expected(self.batches[: self.done])
        assert TOTALS.result(self.place.rows()) == expected, "rows"
        assert self.state(checkpoint) == expected, "state"

    def state(self, checkpoint: str) -> dict[tuple[Any, ...], dict[str, Any]]:
        frame = self.spark.read.format("statestore").load(checkpoint)
        rows = frame.selectExpr("key.k", "value.count n", "value.sum", "value.max").collect()
        return by_key([row.asDict() for row in rows], "k")

    def copied(self, name: str) -> "Query":
        """One that goes on from where this one is."""
        place = Place(self.place.root.parent / name, input_root=self.place.root)
        for number, path in enumerate(sorted(self.place.written.glob("[!.]*.json"))):
            place.write(number, json.loads(path.read_text()))
        return Query(self.spark, place, self.batches, self.done)


@dataclass
class Stage:
    """Checkpoints below one URL, and queries with input below one local directory."""

    spark: "SparkSession"
    url: str
    root: Path
    queries: int = field(default=0, init=False)

    def checkpoint(self, name: str) -> str:
        return f"{self.url}/{name}/checkpoint"

    def query(self) -> Query:
        self.queries += 1
        place = Place(self.root / f"query-{self.queries}")
        return Query(self.spark, place, input_of(self.queries))

    def remove(self, url: str) -> None:
        # Spark keeps the stores of a query that has ended until their next maintenance, which
        # may still upload a snapshot, and so bring the directory back.
        assert self.spark._jvm is not None
        self.spark._jvm.org.apache.spark.sql.execution.streaming.state.StateStore.stop()
        path, files = self._at(url)
        assert files.delete(path, True), f"{url} was not removed"

    def copy(self, url: str, to: str) -> None:
        assert self.spark._jvm is not None
        utility = self.spark._jvm.org.apache.hadoop.fs.FileUtil
        (source, files), (target, others) = self._at(url), self._at(to)
        assert utility.copy(files, source, others, target, False, self._conf()), f"no copy of {url}"

    def set_back(self, url: str, batches: int) -> None:
        """Removes the newest commits and their offsets, as the documentation of Spark says."""
        for folder in ("commits", "offsets"):
            path, files = self._at(f"{url}/{folder}")
            numbers = [status.getPath().getName() for status in files.listStatus(path)]
            for number in sorted(int(name) for name in numbers if name.isdecimal())[-batches:]:
                self.remove(f"{url}/{folder}/{number}")

    def _conf(self) -> Any:
        return self.spark._jsparkSession.sessionState().newHadoopConf()

    def _at(self, url: str) -> tuple[Any, Any]:
        assert self.spark._jvm is not None
        path = self.spark._jvm.org.apache.hadoop.fs.Path(url)
        return path, path.getFileSystem(self._conf())


def a_directory_is_removed_and_used_again(stage: Stage) -> None:
    checkpoint = stage.checkpoint("again")
    stage.query().run(checkpoint, 4)
    stage.remove(checkpoint)
    query = stage.query()
    query.run(checkpoint, 3)
    query.run(checkpoint, 1)


def a_query_is_set_back_by_two_batches(stage: Stage) -> None:
    checkpoint, query = stage.checkpoint("back"), stage.query()
    query.run(checkpoint, 11)
    # Into the batches that a roll-up has by now.
    stage.set_back(checkpoint, 2)
    query.run(checkpoint, 2)
    stage.set_back(checkpoint, 1)
    query.run(checkpoint, 3)


def a_copy_goes_on_as_well_as_its_original(stage: Stage) -> None:
    checkpoint, other = stage.checkpoint("original"), stage.checkpoint("copy")
    query = stage.query()
    query.run(checkpoint, 3)
    stage.copy(checkpoint, other)
    copied = query.copied("copied")
    for _ in range(2):
        copied.run(other, 2)
        # Both read the same input, which has its files already.
        query.done = copied.done
        query.run(checkpoint, 0)


@pytest.mark.parametrize("scheme", more_in_depth(["file"], ["file", "faulty"]))
@pytest.mark.parametrize(
    "story",
    [
        a_directory_is_removed_and_used_again,
        a_query_is_set_back_by_two_batches,
        a_copy_goes_on_as_well_as_its_original,
    ],
    ids=lambda story: str(story.__name__),
)
def test_in_one_session(
    spark: "SparkSession", tmp_path: Path, story: Callable[[Stage], None], scheme: str
) -> None:
    story(Stage(spark, f"{scheme}://{tmp_path}/checkpoints", tmp_path))
