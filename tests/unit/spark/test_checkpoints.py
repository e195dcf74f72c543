"""`tidelog spark checkpoints`, and what counts as live, expired, orphan or lost."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import files, lay_out, tidelog
from tests.unit.spark.synthetic import Synthetic, roll_up_object
from tidelog.errors import ObjectNotFoundError
from tidelog.spark.checkpoint.checkpoint import Checkpoint
from tidelog.spark.checkpoint.liveness import Assessment
from tidelog.spark.checkpoint.locate import Located, locate
from tidelog.spark.checkpoint.location import find_layout, store_url
from tidelog.spark.checkpoint.reading import read_checkpoint
from tidelog.storage.memory import MemoryStore


def stored(synthetic: Synthetic) -> MemoryStore:
    """The checkpoint in memory."""
    store = MemoryStore()
    for name, data in synthetic.objects.items():
        asyncio.run(store.put(name, data))
    return store


def examine(synthetic: Synthetic) -> tuple[Checkpoint, Located]:
    async def work() -> tuple[Checkpoint, Located]:
        checkpoint = await read_checkpoint(store)
        return checkpoint, await locate(store, checkpoint)

    store = stored(synthetic)
    return asyncio.run(work())


def remove_segments(synthetic: Synthetic, batch: int) -> None:
    """Remove all segments that a batch wrote."""
    for segment in {p.segment for e in synthetic.documents[batch].entries for p in e.pieces}:
        del synthetic.objects[f"_tidelog/segments/{segment}"]


def live_paths(assessment: Assessment) -> set[str]:
    return {entry.name.path for entry in assessment.live}


def document(directory: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(tidelog("spark", "checkpoints", directory, "--json").stdout)
    return result


def test_a_checkpoint_tells_its_batches_and_its_log(tmp_path: Path) -> None:
    synthetic = Synthetic(operators=2, partitions=3).virtual(12).snapshots(version=8)
    found = document(lay_out(tmp_path, synthetic.objects))
    assert [batch["batch"] for batch in found["batches"]] == list(range(12))
    last = found["batches"][-1]
    assert (last["operators"], last["partitions"], last["changelogs"]) == (2, 6, 6)
    assert (last["segments"], last["files"], last["format"]) == (2, 0, 2)
    assert last["started_ms"] == 1_700_000_011_000
    assert found["batches"][7]["snapshots"] == 6
    assert found["log"]["segments"] == 24
    assert found["log"]["roll_ups"] == 1
    assert found["log"]["live_changelogs"] == 72
    assert 0 < found["log"]["live_bytes"] < found["log"]["bytes"]
    assert sum(batch["log_bytes"] for batch in found["batches"]) == found["log"]["live_bytes"]
    assert found["damaged"] == []


def test_a_stock_checkpoint_has_files_and_no_log(tmp_path: Path) -> None:
    found = document(lay_out(tmp_path, Synthetic().stock(3).objects))
    assert [batch["files"] for batch in found["batches"]] == [2, 2, 2]
    assert found["log"]["segments"] == 0


def test_the_list_for_people_has_a_row_per_batch(tmp_path: Path) -> None:
    result = tidelog("spark", "checkpoints", lay_out(tmp_path, Synthetic().virtual(2).objects))
    assert result.exit_code == 0
    assert result.stdout.startswith("batch")
    assert "log: 4 segments" in result.stdout


def test_segments_no_index_names_are_orphans(tmp_path: Path) -> None:
    synthetic = Synthetic().virtual(2).failed_attempt()
    found = document(lay_out(tmp_path, synthetic.objects))
    assert found["log"]["orphan_segments"] == 2
    assert found["log"]["live_changelogs"] == 4


def test_everything_since_the_beginning_is_live_without_a_snapshot() -> None:
    synthetic = Synthetic().virtual(25).purge(until=15)
    _, located = examine(synthetic)
    assert live_paths(located.assessment) == {name.path for name in synthetic.model}
    assert located.assessment.lost == ()


def test_changelogs_below_the_snapshot_of_the_oldest_batch_are_expired() -> None:
    synthetic = Synthetic().virtual(25).snapshots(10).snapshots(20).purge(until=15)
    _, located = examine(synthetic)
    expected = {name.path for name in synthetic.model if name.version >= 10}
    assert live_paths(located.assessment) == expected
    assert located.assessment.expired == 2 * 9


def test_a_snapshot_of_an_attempt_that_lost_keeps_nothing_from_being_live() -> None:
    synthetic = Synthetic().virtual(25).purge(until=15)
    for partition in range(2):
        synthetic.objects[f"state/0/{partition}/10_lost.zip"] = b"zip"
    _, located = examine(synthetic)
    assert live_paths(located.assessment) == {name.path for name in synthetic.model}


def test_segments_that_only_expired_changelogs_lay_in_may_be_gone() -> None:
    synthetic = Synthetic().virtual(25).snapshots(10).snapshots(20).purge(until=15)
    remove_segments(synthetic, 3)
    _, located = examine(synthetic)
    assert located.assessment.lost == ()


@pytest.mark.parametrize(("snapshot", "lost"), [(9, set()), (10, set()), (11, set(range(8)))])
def test_first_changelogs_that_a_roll_up_still_names_are_lost_if_a_batch_misses_them(
    snapshot: int, lost: set[int]
) -> None:
    """Spark may have cleaned up the state of batches 7 and 8, but not of batch 9."""
    synthetic = Synthetic().virtual(13).snapshots(snapshot).purge(until=7)
    for batch in range(8):
        remove_segments(synthetic, batch)
    _, located = examine(synthetic)
    assert {each.batch for each in located.assessment.lost} == lost


def test_a_segment_that_is_needed_and_gone_is_named() -> None:
    synthetic = Synthetic(executors=1).virtual(5)
    segment = synthetic.segments()[3]
    del synthetic.objects[segment]
    _, located = examine(synthetic)
    assert {lost.batch for lost in located.assessment.lost} == {3}
    assert all(segment in lost.what for lost in located.assessment.lost)


def test_a_lost_roll_up_is_found_again_in_the_footers() -> None:
    synthetic = Synthetic().virtual(25).purge(until=22)
    del synthetic.objects[roll_up_object(10)]
    _, located = examine(synthetic)
    assert located.footers is not None
    assert live_paths(located.assessment) == {name.path for name in synthetic.model}
    assert located.assessment.lost == ()


def test_a_whole_index_reads_no_footers() -> None:
    _, located = examine(Synthetic().virtual(25).purge(until=15))
    assert located.footers is None


def test_footers_of_attempts_that_lost_are_left_out() -> None:
    synthetic = Synthetic().virtual(3)
    lost = list(synthetic.names(2, attempt="f"))
    synthetic.write_segments(lost, model=False)
    synthetic.objects["commits/1"] = synthetic.objects["commits/1"].rsplit(b"\n", 1)[0]
    _, located = examine(synthetic)
    assert located.footers is not None
    assert live_paths(located.assessment) == {name.path for name in synthetic.model}


def test_a_changelog_in_several_pieces_is_one_changelog() -> None:
    synthetic = Synthetic(piece_bytes=20).virtual(3)
    synthetic.objects["commits/1"] = synthetic.objects["commits/1"].rsplit(b"\n", 1)[0]
    checkpoint, located = examine(synthetic)
    assert live_paths(located.assessment) == {name.path for name in synthetic.model}
    indexed = {e.name: e for e in synthetic.documents[1].entries}
    found = {e.name: e for e in located.assessment.live if e.name.version == 2}
    assert found == indexed
    assert checkpoint.damaged == {}


def test_stock_files_below_the_log_count_as_there() -> None:
    synthetic = Synthetic().stock(5).virtual(5).purge(until=3)
    _, located = examine(synthetic)
    assert located.assessment.lost == ()
    assert {entry.name.version for entry in located.assessment.live} == set(range(6, 11))


def test_an_id_carried_over_from_the_batch_before_is_not_lost() -> None:
    synthetic = Synthetic().virtual(2)
    synthetic.objects["commits/2"] = synthetic.objects["commits/1"].rsplit(b"\n", 1)[0]
    _, located = examine(synthetic)
    assert located.assessment.lost == ()


def test_an_id_that_is_nowhere_is_lost() -> None:
    synthetic = Synthetic().virtual(2)
    synthetic.commit(2, list(synthetic.names(2)), None)
    _, located = examine(synthetic)
    assert {lost.batch for lost in located.assessment.lost} == {2}


def test_a_snapshot_can_stand_for_a_changelog() -> None:
    synthetic = Synthetic().virtual(2)
    synthetic.commit(2, list(synthetic.names(2)), None)
    _, located = examine(synthetic.snapshots(version=3))
    assert located.assessment.lost == ()


def test_stores_of_a_join_are_told_apart() -> None:
    synthetic = Synthetic(stores=("left-keyToNumValues", "right-keyToNumValues")).virtual(3)
    _, located = examine(synthetic)
    assert live_paths(located.assessment) == {name.path for name in synthetic.model}
    assert set(located.assessment.stores) == {
        f"0/{partition}/{side}-keyToNumValues" for partition in (0, 1) for side in ("left", "right")
    }


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-40],
        lambda data: data.replace(b'"crc32c":"', b'"crc32c":"f'),
        lambda data: data.rsplit(b"\n", 1)[0] + b"\n{}",
        lambda data: data.rsplit(b"\n", 1)[0] + b"\n\xff\xfe",
    ],
)
def test_a_damaged_index_line_is_named_and_spark_part_still_counts(
    damage: Any, tmp_path: Path
) -> None:
    synthetic = Synthetic().virtual(3)
    synthetic.objects["commits/1"] = damage(synthetic.objects["commits/1"])
    directory = lay_out(tmp_path, synthetic.objects)
    result = tidelog("spark", "checkpoints", directory, "--json")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert [entry["object"] for entry in found["damaged"]] == ["commits/1"]
    assert [batch["batch"] for batch in found["batches"]] == [0, 1, 2]
    assert found["log"]["live_changelogs"] == 4
    assert files(directory) == synthetic.objects


@pytest.mark.parametrize("data", [b"", b"nonsense\n{}", b"v2\n{", b'v2\n{"stateUniqueIds":[1]}'])
def test_a_damaged_commit_is_named(data: bytes, tmp_path: Path) -> None:
    synthetic = Synthetic().virtual(3)
    synthetic.objects["commits/1"] = data
    result = tidelog("spark", "checkpoints", lay_out(tmp_path, synthetic.objects))
    assert result.exit_code == 1
    assert "object commits/1 is damaged" in result.stdout


def test_an_index_under_another_name_is_damage() -> None:
    synthetic = Synthetic().virtual(20)
    synthetic.objects[roll_up_object(10)] = synthetic.objects[roll_up_object(0)]
    checkpoint, _ = examine(synthetic)
    assert list(checkpoint.damaged) == [roll_up_object(10)]
    swapped = Synthetic().virtual(2)
    line = swapped.objects["commits/0"].rsplit(b"\n", 1)[1]
    swapped.objects["commits/1"] = swapped.objects["commits/1"].rsplit(b"\n", 1)[0] + b"\n" + line
    checkpoint, _ = examine(swapped)
    assert list(checkpoint.damaged) == ["commits/1"]


def test_a_directory_without_a_query_is_an_error(tmp_path: Path) -> None:
    result = tidelog("spark", "checkpoints", tmp_path / "typo")
    assert result.exit_code == 1
    assert "check the URL" in result.stderr
    assert not (tmp_path / "typo").exists()


def test_hidden_checksum_files_of_hadoop_are_no_objects_of_the_checkpoint() -> None:
    synthetic = Synthetic().virtual(11)
    for name in list(synthetic.objects):
        folder, _, leaf = name.rpartition("/")
        synthetic.objects[f"{folder}/.{leaf}.crc"] = b"crc"
    checkpoint, located = examine(synthetic)
    assert checkpoint.damaged == {}
    assert len(checkpoint.commits) == 11
    assert len(located.assessment.live) == 22
    assert "commits/.0.crc" in checkpoint.sidecars


@pytest.mark.parametrize(
    ("location", "url"),
    [
        ("s3a://bucket/a", "s3://bucket/a"),
        ("s3n://bucket/a", "s3://bucket/a"),
        ("file:/a/b", "file:///a/b"),
        ("file:///a/b", "file:///a/b"),
        ("/a/b", "/a/b"),
        ("hdfs://name/a", "hdfs://name/a"),
    ],
)
def test_locations_are_taken_as_spark_writes_them(location: str, url: str) -> None:
    assert store_url(location) == url


@pytest.mark.parametrize(
    ("name", "layout"),
    [
        ("checkpoints/00000007.json", "job"),
        ("offsets/0", "query"),
        ("commits/0", "query"),
        ("_tidelog/segments/a-1-00000001.seg", "query"),
    ],
)
def test_one_object_of_a_layout_tells_it(name: str, layout: str) -> None:
    store = MemoryStore()
    asyncio.run(store.put(name, b""))
    assert asyncio.run(find_layout(store)) == layout


@pytest.mark.parametrize("name", ["checkpoints/orders/offsets/0", "data/part-0.csv"])
def test_a_folder_of_other_things_is_no_location(name: str) -> None:
    store = MemoryStore()
    asyncio.run(store.put(name, b""))
    with pytest.raises(ObjectNotFoundError, match="expected checkpoints/ of a tidelog job"):
        asyncio.run(find_layout(store))


def test_a_location_with_hadoops_file_scheme_can_be_read(tmp_path: Path) -> None:
    directory = lay_out(tmp_path, Synthetic().virtual(1).objects)
    assert tidelog("spark", "checkpoints", f"file:{directory}").exit_code == 0
