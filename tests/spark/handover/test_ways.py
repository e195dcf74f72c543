"""State that goes to Spark and back by less usual ways."""

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

import tidelog.spark
from tests.spark.handover.embedded import finished, lines, stopped
from tests.spark.handover.functions import END, INPUT, end, records, write
from tests.spark.handover.jobs import Lines, counts_job, named, window_row
from tests.spark.handover.program import run
from tests.spark.support.place import Place
from tests.support.cli import tidelog as command
from tests.unit.storage.encryption.test_sealed import FIRST, key_file
from tidelog import ConfigError, Job, JsonLinesSource, RestoreError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture(autouse=True)
def few_partitions(spark: "SparkSession") -> None:
    spark.conf.set("spark.sql.shuffle.partitions", "2")


def job(root: Path, name: str = "in", output: str = "out", *, follow: bool = False) -> Job:
    return counts_job(JsonLinesSource(root / name, follow=follow), root / output)


def line_of(window: tuple[Any, ...]) -> str:
    """A window as `output` has it."""
    return repr(sorted(named(window_row(window)).items()))


def output(directory: Path) -> Counter[str]:
    """What a job has written, but for what the end of the data has made."""
    rows = [row for row in lines(directory / "o1") if row["k"] != END]
    return Counter(repr(sorted(row.items())) for row in rows)


def in_one_run(root: Path, parts: list[list[Any]]) -> Counter[str]:
    """What a job writes that reads these records at once, in their order: it counts every one that
    is not late, and none that is.
    """
    rows = [row for part in parts for row in part]
    write(root / "all/a.jsonl", rows)
    finished(job(root, "all", "whole"), root / "w")
    counted = sum(int(row["value"]) for row in lines(root / "whole/o1") if row["k"] != END)
    assert counted == len([row for row in rows if row["tag"] not in ("late", "end")])
    return output(root / "whole")


def test_an_encrypted_store_is_moved_to_spark_and_back_with_its_key(
    spark: "SparkSession", tmp_path: Path, place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    parts = records(9, 5, [120, 80, 80])
    parts[-1].append(end())
    key, store = key_file(tmp_path / "state.key", FIRST), tmp_path / "store"
    write(tmp_path / "in/a.jsonl", parts[0])
    stopped(job(tmp_path, follow=True), store, len(parts[0]), key=key)
    write(tmp_path / "in/b.jsonl", parts[1])

    def query(savepoint: str | None, encryption_key: str | None) -> None:
        tidelog.spark.run(
            job(tmp_path),
            checkpoint=str(place.checkpoint),
            spark=spark,
            available_now=True,
            savepoint=savepoint,
            encryption_key=encryption_key,
        ).wait()

    with pytest.raises(ConfigError, match="no encryption key was given"):
        query(f"{store}@halt", None)
    with pytest.raises(ConfigError, match="encrypts no checkpoint of Spark"):
        query(None, key)
    assert not place.checkpoint.exists(), "refused before anything is written"
    query(f"{store}@halt", key)
    assert "a checkpoint of Spark is not" in caplog.text
    assert place.committed()
    back = ("spark", "savepoint", place.checkpoint, "--to", f"{store}@back")
    assert command(*back).exit_code == 2
    returned = command(*back, "--encryption-key", key)
    assert returned.exit_code == 0, returned.output
    write(tmp_path / "in/c.jsonl", parts[2])
    finished(job(tmp_path), store, key)
    assert output(tmp_path / "out") == in_one_run(tmp_path, parts)


def test_a_query_over_a_data_frame_goes_back_without_positions(
    spark: "SparkSession", tmp_path: Path, place: Place
) -> None:
    parts = records(10, 5, [120, 80, 80])
    parts[-1].append(end())
    store, other = tmp_path / "store", tmp_path / "other"
    for name, rows in zip("abc", parts, strict=True):
        write(tmp_path / name / "a.jsonl", rows)
    stopped(job(tmp_path, "a", follow=True), store, len(parts[0]))

    def frame() -> "DataFrame":
        return tidelog.spark.run_operator(
            spark.readStream.schema(INPUT).json(str(tmp_path / "b")),
            job(tmp_path),
            "counts",
            output_schema="k string, start bigint, count bigint",
            checkpoint=str(place.checkpoint),
            savepoint=f"{store}@halt",
        )

    run(frame(), place)
    back = ("spark", "savepoint", place.checkpoint, "--to", f"{other}@back")
    refused = command(*back)
    assert refused.exit_code == 2
    assert "in place of sources source" in refused.stderr
    assert "--without-positions" in refused.stderr
    assert not other.exists()
    returned = command(*back, "--without-positions")
    assert returned.exit_code == 0, returned.output
    with pytest.raises(RestoreError, match="it went back to savepoint"):
        frame()
    finished(job(tmp_path, "c"), other)
    on_spark = [(row["k"], row["start"], row["count"]) for row in place.rows()]
    assert on_spark, "the query has output of its own"
    found = output(tmp_path / "out") + Counter(map(line_of, on_spark))
    assert found == in_one_run(tmp_path, parts)


def test_a_source_of_ones_own_goes_on_in_spark_and_back(
    spark: "SparkSession", tmp_path: Path, place: Place
) -> None:
    made = records(11, 5, [120, 90, 90, 90])
    parts = [[row for row in part if row["tag"] != "late"] for part in made]
    parts[-1] += [end(), end()]
    source, store, held = tmp_path / "in", tmp_path / "store", tmp_path / "held"

    def grow(number: int) -> None:
        """One more part, half of it in each of two files."""
        for half, name in enumerate(("a.jsonl", "b.jsonl")):
            with (source / name).open("a") as file:
                file.writelines(f"{json.dumps(row)}\n" for row in parts[number][half::2])

    def query(savepoint: str | None = None) -> None:
        moved = counts_job(Lines(source, follow=True), tmp_path / "out", held)
        started = tidelog.spark.run(
            moved,
            checkpoint=str(place.checkpoint),
            spark=spark,
            available_now=True,
            savepoint=savepoint,
        )
        started.wait()

    source.mkdir()
    grow(0)
    stopped(counts_job(Lines(source, follow=True), tmp_path / "out"), store, 120)
    grow(1)
    held.touch()
    with pytest.raises(StreamingQueryException, match="held is there"):
        query(f"{store}@halt")
    held.unlink()
    grow(2)
    query(f"{store}@halt")
    query()
    assert place.committed()[:2] == [0, 1], "the batch that failed, as it was, and what came later"
    returned = command("spark", "savepoint", place.checkpoint, "--to", f"{store}@back")
    assert returned.exit_code == 0, returned.output
    grow(3)
    finished(counts_job(Lines(source, follow=False), tmp_path / "out"), store)
    assert output(tmp_path / "out") == in_one_run(tmp_path, parts)


def test_a_job_that_has_ended_goes_on_in_spark_as_it_goes_on_embedded(
    spark: "SparkSession", tmp_path: Path, place: Place
) -> None:
    parts = records(12, 5, [120, 90])
    parts[-1].append(end())
    store = tmp_path / "store"

    def night() -> None:
        finished(job(tmp_path, output="nights"), tmp_path / "other")

    write(tmp_path / "in/a.jsonl", parts[0])
    finished(job(tmp_path), store)
    night()
    first = output(tmp_path / "out")
    write(tmp_path / "in/b.jsonl", parts[1])
    tidelog.spark.run(
        job(tmp_path),
        checkpoint=str(place.checkpoint),
        spark=spark,
        available_now=True,
        savepoint=f"{store}@latest",
    ).wait()
    night()
    assert output(tmp_path / "out") == output(tmp_path / "nights")
    windows = Counter((row["k"], row["time_ms"]) for row in lines(tmp_path / "out/o1"))
    assert max(windows.values()) == 2, "what only the end had emitted comes again, complete"
    assert output(tmp_path / "out") - first, "and what is new"
