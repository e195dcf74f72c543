"""Verification by a real Spark: stores of tidelog, and checkpoints of queries."""

import asyncio
import json
import re
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.support.place import Place
from tests.spark.support.running import ROUNDS, run_in_rounds
from tests.spark.support.zoo.aggregations import TOTALS
from tests.support.cli import files, lay_out, tidelog
from tests.support.damage import damaged, flipped, last_segment, missing
from tests.support.depth import more_in_depth
from tests.support.jobs import filled
from tests.unit.verify.stores import verified
from tidelog.effects import Effects
from tidelog.engines import SparkEngine, WorkerConfig, Workspace
from tidelog.errors import AccessDeniedError
from tidelog.verify.results import UnitResult

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def verify(spark: "SparkSession", directory: Path, *options: str) -> tuple[int, dict[str, Any]]:
    """`tidelog verify` on the session of these tests: exit code and document."""
    result = tidelog("verify", directory, "--json", *options)
    assert result.stdout, result.output
    return result.exit_code, json.loads(result.stdout)


def test_spark_finds_what_one_process_finds(spark: "SparkSession", tmp_path: Path) -> None:
    objects = damaged(filled(), last_segment(filled(), 7), flipped)
    directory = lay_out(tmp_path / "store", objects)
    code, document = verify(spark, directory)
    assert code == 1 and document["engine"] == "spark"
    here = verified(objects)
    assert [p["where"] for p in document["problems"]] == [p.where for p in here.problems]
    assert [tuple(p["unusable"]) for p in document["problems"]] == [
        p.unusable for p in here.problems
    ]
    verdicts = [(c["checkpoint"], c["verdict"], c["rows"]) for c in document["checkpoints"]]
    assert verdicts == [(c.checkpoint, c.verdict, c.rows) for c in here.checkpoints]
    assert files(directory) == objects


def test_an_encrypted_store_passes_with_its_key_and_is_refused_without(
    spark: "SparkSession", tmp_path: Path
) -> None:
    (tmp_path / "input").mkdir()
    (tmp_path / "input" / "one.txt").write_text("the tide rises\nthe tide falls\n")
    key, store = ("--encryption-key", str(tmp_path / "state.key")), str(tmp_path / "store")
    assert tidelog("key", "new", key[1]).exit_code == 0
    job = ["run", "wordcount", "--input", str(tmp_path / "input"), "--store", store, *key]
    assert tidelog(*job, "--output", tmp_path / "counts").exit_code == 0
    code, document = verify(spark, tmp_path / "store", *key)
    assert code == 0 and document["passed"]
    assert document["checkpoints"][-1]["rows"] > 0
    refused = tidelog("verify", store)
    assert refused.exit_code == 2 and "--encryption-key" in refused.stderr


class Failing:
    """A unit that fails in a way nobody expects."""

    weight = 1

    def __init__(self, error: Exception) -> None:
        self.error = error

    async def run(self, workspace: Workspace) -> UnitResult:
        raise self.error


def test_an_error_of_an_executor_is_raised_as_it_was(spark: "SparkSession") -> None:
    denied = AccessDeniedError("object x", expected="to read it", found="403", action="ask")
    effects, config = Effects(), WorkerConfig("memory://spark-verify")
    engine = SparkEngine(spark, effects, config, "tidelog verify")
    with closing(effects.offload), pytest.raises(AccessDeniedError, match="object x"):
        asyncio.run(engine.run([Failing(denied)], lambda done, total: None))


@pytest.fixture(scope="module")
def totals(one_spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A place where the totals query has run over all of its input."""
    place = Place(tmp_path_factory.mktemp("totals"))
    run_in_rounds(one_spark.newSession(), TOTALS, place, number=more_in_depth(1, ROUNDS))
    return place


def test_a_query_of_spark_is_sound(spark: "SparkSession", totals: Place) -> None:
    code, document = verify(spark, totals.checkpoint)
    assert document["problems"] == [] and code == 0
    assert document["layout"] == "spark"
    verdicts = [c["verdict"] for c in document["checkpoints"]]
    # The house-keeping of the query's last batches may go on after the query has ended.
    assert set(verdicts[:-3]) <= {"sound", "expired", "gone"} and set(verdicts[-3:]) == {"sound"}
    assert sum(c["redundancy"]["equal"] for c in document["checkpoints"]) > 0
    assert sum(c["redundancy"]["different"] for c in document["checkpoints"]) == 0


@pytest.mark.plugin_only
def test_damage_to_a_query_of_spark_is_named_with_what_it_costs(
    spark: "SparkSession", totals: Place, tmp_path: Path
) -> None:
    objects = files(totals.checkpoint)
    # A name begins with the random id of its run and ends with the batch.
    segments = [name for name in objects if re.search(r"/segments/[^.].*\.seg$", name)]
    newest = max(segments, key=lambda name: name.rsplit("-")[-1])
    for number, damage in enumerate((flipped, missing)):
        hurt = lay_out(tmp_path / str(number), damaged(objects, newest, damage))
        code, document = verify(spark, hurt, "--engine", "local")
        assert code == 1
        assert {problem["where"] for problem in document["problems"]} == {newest}
    # One file alone may belong to a snapshot that Spark has deleted or not yet named.
    ssts = {name for name in objects if re.search(r"/SSTs/[^.].*\.sst$", name)}
    without = {name: data for name, data in objects.items() if name not in ssts}
    code, document = verify(spark, lay_out(tmp_path / "without_tables", without))
    problems = {problem["where"] for problem in document["problems"]}
    assert code == 1 and problems and problems <= ssts
