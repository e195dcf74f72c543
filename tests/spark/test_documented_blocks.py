"""The programs that the docs print for Spark run as they are printed, but for their addresses."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.first_jobs.programs import add_rows
from tests.support.cli import lay_out, tidelog
from tests.support.documentation import BLOCKS
from tests.support.jobs import filled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def names_of(block: str, addresses: dict[str, Path], **given: Any) -> dict[str, Any]:
    """What a printed program defines; it finds its data at these addresses."""
    text = BLOCKS[block]
    for printed, path in addresses.items():
        assert printed in text
        text = text.replace(printed, str(path))
    exec(text, given)
    return given


def test_the_data_source_shows_changes(
    spark: "SparkSession", tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = {"s3://bucket/jobs/counts": lay_out(tmp_path / "store", filled())}
    names_of("data-source 0", store, spark=spark)
    assert "|operator|subtask|" in capsys.readouterr().out


def test_a_processor_runs_and_its_state_is_read(
    spark: "SparkSession", tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    times = [0, 10_000, 100_000, 120_000]
    readings = [{"device": "a", "time_ms": time, "value": 1.0} for time in times]
    add_rows(tmp_path / "readings" / "1.jsonl", readings)
    add_rows(tmp_path / "readings" / "2.jsonl", [{"device": "b", "time_ms": 500_000, "value": 1.0}])
    places = {"s3a://bucket/outages": tmp_path / "outages"}
    given = names_of("processor 2", places | {"readings/": tmp_path / "readings"})
    found: list[Any] = []
    query = given["query"].foreachBatch(lambda rows, _: found.extend(rows.collect()))
    query.trigger(availableNow=True).start().awaitTermination()
    assert [(row.device, row.silent_ms) for row in found] == [("a", 90_000)]
    names_of("processor 4", places, spark=spark)
    assert "{a}" in capsys.readouterr().out


def test_a_state_is_joined_with_expected_values(
    spark: "SparkSession", tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, store = tmp_path / "input" / "one.txt", tmp_path / "store"
    text.parent.mkdir()
    text.write_text("the tide rises\nthe tide falls\n")
    job = ("wordcount", "--input", text.parent, "--store", store, "--output", tmp_path / "counts")
    assert tidelog("run", *job, "--quiet").exit_code == 0
    places = {"s3://bucket/jobs/wordcount": store, "s3a://bucket/input": text.parent}
    assert names_of("verify 0", places, spark=spark)["differing"].collect() == []
    text.write_text("the tide turns\n")
    differing = names_of("verify 0", places, spark=spark)["differing"].collect()
    assert {tuple(row) for row in differing} == {
        ("the", 2, 1),
        ("tide", 2, 1),
        ("rises", 1, None),
        ("falls", 1, None),
        ("turns", None, 1),
    }
    assert "|turns|" in capsys.readouterr().out.replace(" ", "")
