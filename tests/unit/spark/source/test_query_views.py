"""The views of a Spark query's checkpoint agree with what was put into it."""

import json
from pathlib import Path

import pytest

from tests.support.cli import lay_out, tidelog
from tests.support.damage import flipped
from tests.unit.spark.source.reading import read
from tests.unit.spark.synthetic import Synthetic, roll_up_object
from tidelog.errors import ConfigError


def made() -> Synthetic:
    """Twelve batches of two operators, one of them with two stores; a roll-up; a failed attempt."""
    stores = ("default", "left-keyToNumValues")
    query = Synthetic(operators=2, partitions=3, stores=stores)
    return query.virtual(12).failed_attempt()


@pytest.mark.parametrize("view", ["blocks", "changes", "state"])
def test_what_spark_itself_reads_of_a_query_is_refused_with_the_way_on(
    view: str, tmp_path: Path
) -> None:
    directory = lay_out(tmp_path, made().objects)
    with pytest.raises(ConfigError, match=f"view {view} .*statestore.*readChangeFeed"):
        read(directory, view=view)


def test_checkpoints_are_what_the_command_lists(tmp_path: Path) -> None:
    checkpoint = made().snapshots(8)
    directory = lay_out(tmp_path, checkpoint.objects)
    listed = json.loads(tidelog("spark", "checkpoints", directory, "--json").stdout)["batches"]
    found = {row["checkpoint"]: row for row in read(directory, view="checkpoints")}
    assert list(found) == [batch["batch"] for batch in listed]
    for batch in listed:
        row = found[batch["batch"]]
        assert (row["operators"], row["subtasks"]) == (batch["operators"], batch["partitions"])
        assert row["log_bytes"] == batch["log_bytes"]
        assert row["created"].timestamp() * 1000 == batch["started_ms"]
        assert row["manifest_bytes"] == len(checkpoint.objects[f"commits/{batch['batch']}"])
    assert [row["checkpoint"] for row in read(directory, view="checkpoints", checkpoint="3-5")] == [
        3,
        4,
        5,
    ]


def test_a_damaged_commit_is_a_row_that_says_so(tmp_path: Path) -> None:
    checkpoint = made()
    checkpoint.objects["commits/4"] = b"nothing of Spark's"
    checkpoint.objects["commits/5"] = flipped(checkpoint.objects["commits/5"])
    directory = lay_out(tmp_path, checkpoint.objects)
    rows = {row["checkpoint"]: row for row in read(directory, view="checkpoints")}
    assert rows[4]["kind"] == "unreadable" and "commits/4" in rows[4]["error"]
    assert "commits/5" in rows[5]["error"]
    assert rows[6]["error"] is None


def test_objects_are_all_that_is_stored(tmp_path: Path) -> None:
    checkpoint = made().stock(1).snapshots(8)
    checkpoint.objects["metadata"] = b"{}"
    checkpoint.objects["commits/.3.crc"] = b"crc"
    directory = lay_out(tmp_path, checkpoint.objects)
    found = {row["name"]: row for row in read(directory, view="objects")}
    assert {name: row["bytes"] for name, row in found.items()} == {
        name: len(data) for name, data in checkpoint.objects.items()
    }
    assert found["metadata"]["kind"] == "other"
    assert found["commits/.3.crc"]["kind"] == "checksum"
    assert found["commits/3"]["referenced_by"] == [3]
    assert found[roll_up_object(0)]["kind"] == "index"
    assert found[roll_up_object(0)]["referenced_by"] == list(range(10))
    snapshot = next(row for row in found.values() if row["kind"] == "snapshot")
    assert snapshot["referenced_by"] == [7] and snapshot["orphan"] is None
    changelog = next(row for row in found.values() if row["kind"] == "changelog")
    assert changelog["referenced_by"] == [12]


def test_segments_that_no_index_names_are_orphans(tmp_path: Path) -> None:
    checkpoint = Synthetic().virtual(3)
    committed = set(checkpoint.segments())
    checkpoint.failed_attempt()
    directory = lay_out(tmp_path, checkpoint.objects)
    found = {r["name"]: r for r in read(directory, view="objects") if r["kind"] == "segment"}
    assert {name for name, row in found.items() if row["orphan"] is False} == committed
    assert {name for name, row in found.items() if row["orphan"]} == set(found) - committed
    assert all((row["referenced_by"] == []) == row["orphan"] for row in found.values())
