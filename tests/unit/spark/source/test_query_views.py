"""The views of a Spark query's checkpoint agree with what was put into it."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.golden.golden_spark import CHANGELOGS
from tests.support.cli import lay_out, tidelog
from tests.support.damage import Damage, damaged, flipped, missing
from tests.unit.spark.source.changelogs import COLUMNS, content_of, expected
from tests.unit.spark.source.reading import bag, planned, read, request
from tests.unit.spark.synthetic import Synthetic as Checkpoints
from tests.unit.spark.synthetic import roll_up_object
from tidelog.errors import ConfigError, CorruptObjectError, ObjectNotFoundError, RestoreError
from tidelog.spark.format.changelog import read_changelog
from tidelog.spark.format.names import ChangelogName
from tidelog.spark.format.segment import read_footer

Synthetic = partial(Checkpoints, content=content_of)

GOLDEN = Path(__file__).parents[3] / "golden"


def made(**changes: Any) -> Checkpoints:
    """Twelve batches of two operators, one of them with two stores; a roll-up; a failed attempt."""
    stores = ("default", "left-keyToNumValues")
    query = Synthetic(operators=2, partitions=3, stores=stores, **changes)
    return query.virtual(12).failed_attempt()


def lost_attempt() -> Checkpoints:
    """Batches from before the plug-in, with a file of an attempt that lost."""
    checkpoint = Synthetic().stock(5).virtual(5)
    lost = next(iter(checkpoint.names(2, attempt="f")))
    checkpoint.objects[f"state/{lost.path}"] = b"of an attempt that lost"
    return checkpoint


def damaged_index() -> Checkpoints:
    checkpoint = Synthetic().virtual(2).failed_attempt().virtual(2)
    commit = checkpoint.objects["commits/2"]
    checkpoint.objects["commits/2"] = commit[:-9] + flipped(commit[-9:])
    return checkpoint


@pytest.mark.parametrize(
    ("checkpoint_of", "oldest"),
    [
        (made, 0),
        (lambda: made(piece_bytes=40), 0),
        (lambda: Synthetic().virtual(25).snapshots(10).snapshots(20).purge(until=15), 15),
        (lost_attempt, 0),
        (damaged_index, 0),
    ],
    ids=["whole", "in pieces", "purged", "from before the plug-in", "by footers"],
)
def test_changes_are_the_records_of_all_committed_changelogs_of_retained_batches(
    checkpoint_of: Callable[[], Checkpoints], oldest: int, tmp_path: Path
) -> None:
    checkpoint = checkpoint_of()
    found = read(lay_out(tmp_path, checkpoint.objects), view="changes")
    wanted = [row for row in expected(checkpoint) if row["checkpoint"] >= oldest]
    assert wanted and bag(found, COLUMNS) == bag(wanted)
    assert all(row["object"] in checkpoint.objects for row in found)


@pytest.mark.parametrize("golden", CHANGELOGS)
def test_what_spark_itself_wrote_is_read(golden: str, tmp_path: Path) -> None:
    data = (GOLDEN / golden).read_bytes()
    checkpoint = Checkpoints(partitions=1, executors=1, content=lambda *_: data).virtual(1)
    found = read(lay_out(tmp_path, checkpoint.objects), view="changes")
    records = read_changelog(data, golden).records
    assert [(row["op"], row["key"], row["value"]) for row in found] == [
        (record.kind.name.lower(), record.key, record.value) for record in records
    ]
    assert [row["position"] for row in found] == list(range(len(records)))


def test_a_batch_can_be_chosen(tmp_path: Path) -> None:
    checkpoint = made()
    directory = lay_out(tmp_path, checkpoint.objects)
    wanted = [row for row in expected(checkpoint) if row["checkpoint"] in (3, 10)]
    assert bag(read(directory, view="changes", checkpoint="3,10"), COLUMNS) == bag(wanted)
    asked = request(directory, view="changes", checkpoint="3", partitionBytes=0)
    assert len(planned(asked)) == checkpoint.executors
    with pytest.raises(ObjectNotFoundError, match="here 0 to 11; found none of them"):
        read(directory, view="changes", checkpoint="12-")


def test_operator_partition_and_version_can_be_chosen(tmp_path: Path) -> None:
    checkpoint = made()
    directory = lay_out(tmp_path, checkpoint.objects)
    found = read(
        directory, view="changes", operator="1,0/left-keyToNumValues", subtask="1-", seqno="5-7"
    )
    wanted = [
        row
        for row in expected(checkpoint)
        if row["operator"] in ("1", "0/left-keyToNumValues")
        and row["subtask"] >= 1
        and 5 <= row["seqno"] <= 7
    ]
    assert wanted and bag(found, COLUMNS) == bag(wanted)


def test_a_damaged_commit_is_an_error_where_its_batch_is_wanted(tmp_path: Path) -> None:
    checkpoint = Synthetic().virtual(4)
    checkpoint.objects["commits/2"] = b"nothing of Spark's"
    directory = lay_out(tmp_path, checkpoint.objects)
    with pytest.raises(CorruptObjectError, match="commits/2"):
        read(directory, view="changes")
    found = read(directory, view="changes", checkpoint="0,3")
    assert bag(found, COLUMNS) == bag(r for r in expected(checkpoint) if r["checkpoint"] in (0, 3))


def test_a_lost_commit_is_an_error_where_its_batch_is_wanted(tmp_path: Path) -> None:
    query = lay_out(tmp_path, damaged(made().objects, "commits/5", missing))
    for options in ({}, {"checkpoint": "5-7"}):
        with pytest.raises(RestoreError, match="commits/5"):
            read(query, view="changes", **options)
    assert read(query, view="changes", checkpoint="6-")
    newest = lay_out(tmp_path / "newest", damaged(made().objects, "commits/11", missing))
    assert {row["checkpoint"] for row in read(newest, view="changes")} == set(range(11))


@pytest.mark.parametrize("damage", [flipped, missing])
def test_a_damaged_segment_is_an_error_that_names_it(damage: Damage, tmp_path: Path) -> None:
    checkpoint = Synthetic(executors=1).virtual(5)
    segment = checkpoint.segments()[3]
    directory = lay_out(tmp_path, damaged(checkpoint.objects, segment, damage))
    with pytest.raises((CorruptObjectError, RestoreError), match=segment):
        read(directory, view="changes")
    assert read(directory, view="changes", checkpoint="0-2")


def test_a_checkpoint_that_does_not_name_what_it_committed_is_refused(tmp_path: Path) -> None:
    checkpoint = Synthetic().stock(2)
    for batch in range(2):
        checkpoint.objects[f"commits/{batch}"] = b'v1\n{"nextBatchWatermarkMs":0}'
    with pytest.raises(ConfigError, match="found format 1"):
        read(lay_out(tmp_path, checkpoint.objects), view="changes")


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


def test_blocks_are_what_the_footers_say(tmp_path: Path) -> None:
    checkpoint = made(piece_bytes=40)
    found = read(lay_out(tmp_path, checkpoint.objects), view="blocks")
    wanted = [
        {
            "object": segment,
            "offset": entry.offset,
            "operator": entry.name.operator_id,
            "subtask": entry.name.partition,
            "first_seqno": entry.name.version,
            "stored_bytes": entry.length,
            "raw_bytes": entry.length - 40,
            "id": entry.name.id,
            "piece": entry.piece,
            "pieces": entry.pieces,
        }
        for segment in checkpoint.segments()
        for entry in read_footer(checkpoint.objects[segment], segment)[1]
    ]
    assert bag(found, list(wanted[0])) == bag(wanted)
    for row in found:
        name = ChangelogName.of(*_directory(row), row["first_seqno"], row["id"])
        committed = name in checkpoint.model
        assert row["referenced_by"] == ([row["first_seqno"] - 1] if committed else [])
        started = 1_700_000_000 + row["first_seqno"] - 1
        assert (row["time"] and row["time"].timestamp()) == (started if committed else None)


def _directory(row: dict[str, Any]) -> tuple[str]:
    operator, slash, store = row["operator"].partition("/")
    return (f"{operator}/{row['subtask']}{slash}{store}",)
