"""State that goes to Spark and back by the less usual ways: encrypted, and finished."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tidelog.spark
from tests.spark.handover.embedded import finished, lines
from tests.spark.handover.functions import END, end, records, write
from tests.spark.handover.jobs import counts_job, until_read
from tests.spark.support.place import Place
from tests.support.cli import tidelog as command
from tests.unit.storage.encryption.test_sealed import FIRST, key_file
from tidelog import ConfigError, Job, JsonLinesSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(autouse=True)
def few_partitions(spark: "SparkSession") -> None:
    spark.conf.set("spark.sql.shuffle.partitions", "2")


def job(root: Path, name: str = "in", output: str = "out", *, follow: bool = False) -> Job:
    return counts_job(JsonLinesSource(root / name, follow=follow), root / output)


def output(directory: Path) -> Counter[str]:
    """What a job has written, but for what the end of the data has made."""
    rows = [row for row in lines(directory / "o1") if row["k"] != END]
    return Counter(repr(sorted(row.items())) for row in rows)


def in_one_run(root: Path, *parts: str) -> Counter[str]:
    """What a job writes that reads these parts of its input at once."""
    text = "".join((root / part).read_text() for part in parts)
    (root / "all").mkdir()
    (root / "all/a.jsonl").write_text(text)
    finished(job(root, "all", "whole"), root / "w")
    return output(root / "whole")


def test_an_encrypted_store_is_moved_to_spark_and_back_with_its_key(
    spark: "SparkSession", tmp_path: Path, place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    parts = records(9, 5, [120, 80, 80])
    parts[-1].append(end())
    key, store = key_file(tmp_path / "state.key", FIRST), tmp_path / "store"
    write(tmp_path / "in/a.jsonl", parts[0])
    until_read(job(tmp_path, follow=True), store, len(parts[0]), key)
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
    assert output(tmp_path / "out") == in_one_run(
        tmp_path, "in/a.jsonl", "in/b.jsonl", "in/c.jsonl"
    )
