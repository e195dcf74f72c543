"""A query's checkpoint: `tidelog spark checkpoints`, what counts as live, expired, orphan or lost,
and changelogs out of segments.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import files, lay_out, tidelog
from tests.support.jobs import store_of
from tests.unit.spark.synthetic import Synthetic, roll_up_object, without_line
from tidelog.spark.checkpoint.checkpoint import (
    SEGMENTS,
    QueryCheckpoint,
    read_checkpoint,
    store_url,
)
from tidelog.spark.checkpoint.locate import Located, assembled, locate, read_footers
from tidelog.spark.format.names import ChangelogName
from tidelog.spark.format.segment import FooterEntry
from tidelog.storage.memory import MemoryStore
from tidelog.storage.port import ObjectInfo


def examine(synthetic: Synthetic) -> tuple[QueryCheckpoint, Located]:
    async def work() -> tuple[QueryCheckpoint, Located]:
        store = store_of(synthetic.objects)
        checkpoint = await read_checkpoint(store)
        return checkpoint, await locate(store, checkpoint)

    return asyncio.run(work())


def document(synthetic: Synthetic, directory: Path, exit_code: int = 0) -> dict[str, Any]:
    result = tidelog("spark", "checkpoints", lay_out(directory, synthetic.objects), "--json")
    assert result.exit_code == exit_code
    assert files(directory) == synthetic.objects
    found: dict[str, Any] = json.loads(result.stdout)
    return found


@pytest.mark.parametrize("command", ["inspect", "log", "gc", "checkpoints list"])
def test_a_command_for_jobs_names_the_one_for_queries(command: str, tmp_path: Path) -> None:
    result = tidelog(*command.split(), lay_out(tmp_path, Synthetic().virtual(1).objects))
    assert result.exit_code and "`tidelog spark checkpoints`" in result.stderr


def test_a_checkpoint_shows_its_batches_and_its_log(tmp_path: Path) -> None:
    synthetic = Synthetic(operators=2, partitions=3).virtual(12).snapshots(version=8)
    found = document(synthetic, tmp_path)
    assert [batch["batch"] for batch in found["batches"]] == list(range(12))
    last = found["batches"][-1]
    assert (last["operators"], last["partitions"], last["changelogs"]) == (2, 6, 6)
    assert (last["segments"], last["files"], last["format"]) == (2, 0, 2)
    assert last["started_ms"] == 1_700_000_011_000
    assert found["batches"][7]["snapshots"] == 6
    log = found["log"]
    assert (log["segments"], log["roll_ups"], log["live_changelogs"]) == (24, 1, 72)
    assert 0 < log["live_bytes"] < log["bytes"]
    assert sum(batch["log_bytes"] for batch in found["batches"]) == log["live_bytes"]
    assert (log["orphan_segments"], found["damaged"]) == (0, [])


def test_a_stock_checkpoint_has_files_and_segments_no_index_names_are_orphans(
    tmp_path: Path,
) -> None:
    found = document(Synthetic().stock(3), tmp_path / "stock")
    assert [batch["files"] for batch in found["batches"]] == [2, 2, 2]
    assert found["log"]["segments"] == 0
    found = document(Synthetic().virtual(2).failed_attempt(), tmp_path / "failed")
    assert (found["log"]["orphan_segments"], found["log"]["live_changelogs"]) == (2, 4)


def with_lost_snapshots() -> Synthetic:
    """Snapshots of an attempt that no commit names."""
    synthetic = Synthetic().virtual(25).purge(until=15)
    synthetic.objects |= {f"state/0/{partition}/10_lost.zip": b"zip" for partition in range(2)}
    return synthetic


def without_roll_up() -> Synthetic:
    synthetic = Synthetic().virtual(25).purge(until=22)
    del synthetic.objects[roll_up_object(10)]
    return synthetic


def with_lost_attempts() -> Synthetic:
    synthetic = Synthetic().virtual(3).without_line(1)
    synthetic.write_segments(list(synthetic.names(2, attempt="f")), model=False)
    return synthetic


def with_commit_of_known_ids() -> Synthetic:
    """An id can be carried over from the batch before."""
    synthetic = Synthetic().virtual(2)
    synthetic.objects["commits/2"] = without_line(synthetic.objects["commits/1"])
    return synthetic


def with_snapshot_instead() -> Synthetic:
    synthetic = Synthetic().virtual(2)
    synthetic.commit(2, list(synthetic.names(2)), None)
    return synthetic.snapshots(version=3)


SNAPSHOTS = Synthetic().virtual(25).snapshots(10).snapshots(20).purge(until=15)


@pytest.mark.parametrize(
    ("synthetic", "since", "from_footers"),
    [
        (Synthetic().virtual(25).purge(until=15), 0, False),
        (SNAPSHOTS, 10, False),
        (with_lost_snapshots(), 0, False),
        (without_roll_up(), 0, True),
        (with_lost_attempts(), 0, True),
        (Synthetic(piece_bytes=20).virtual(3).without_line(1), 0, True),
        (Synthetic().stock(5).virtual(5).purge(until=3), 6, False),
        (with_commit_of_known_ids(), 0, False),
        (with_snapshot_instead(), 0, False),
        (Synthetic(stores=("left-keyToNumValues", "right-keyToNumValues")).virtual(3), 0, False),
        (Synthetic().packed(25), 0, False),
        (Synthetic().packed(25).purge(until=15), 0, False),
        (Synthetic().packed(13).without_line(12), 0, True),
    ],
    ids=[
        *("no snapshot", "expired", "snapshot of a lost attempt", "lost roll-up", "lost attempts"),
        *("pieces", "stock files", "known ids", "snapshot for a changelog", "stores of a join"),
        *("in commits", "moved out of commits", "in a commit with a lost line"),
    ],
)
def test_what_a_retained_batch_needs_is_live_and_found(
    synthetic: Synthetic, since: int, from_footers: bool
) -> None:
    checkpoint, located = examine(synthetic)
    wanted = {name for name in synthetic.model if name.version >= since}
    assert {entry.name for entry in located.assessment.live} == wanted
    assert (located.damaged_footers is not None) is from_footers
    assert (located.assessment.lost, checkpoint.damaged) == ((), {})
    indexed = {e.name: e for d in synthetic.documents.values() for e in d.entries}
    assert all(indexed[entry.name] == entry for entry in located.assessment.live)


def test_segments_that_only_expired_changelogs_lay_in_may_be_gone() -> None:
    synthetic = replace(SNAPSHOTS, objects=dict(SNAPSHOTS.objects)).without_segments(3)
    _, located = examine(synthetic)
    assert (located.assessment.lost, located.assessment.expired) == ((), 2 * 9)


@pytest.mark.parametrize(("snapshot", "lost"), [(9, set()), (10, set()), (11, set(range(8)))])
def test_first_changelogs_that_a_roll_up_still_names_are_lost_if_a_batch_misses_them(
    snapshot: int, lost: set[int]
) -> None:
    """Spark may have cleaned up the state of batches 7 and 8, but not of batch 9."""
    synthetic = Synthetic().virtual(13).snapshots(snapshot).purge(until=7)
    for batch in range(8):
        synthetic.without_segments(batch)
    _, located = examine(synthetic)
    assert {each.batch for each in located.assessment.lost} == lost


@pytest.mark.parametrize(("snapshot", "lost"), [(9, set()), (10, set()), (11, set(range(2, 8)))])
def test_a_snapshot_that_waits_for_its_removal_needs_no_changelogs_any_more(
    snapshot: int, lost: set[int]
) -> None:
    """The plug-in has cleaned up what lay below a later one; Spark alone removes snapshots."""
    synthetic = Synthetic().virtual(13).snapshots(3).snapshots(snapshot).purge(until=7)
    for batch in range(8):
        synthetic.without_segments(batch)
    assert {each.batch for each in examine(synthetic)[1].assessment.lost} == lost


class Running(MemoryStore):
    """The store of a query that goes on when its commits have been read."""

    def __init__(self, before: Synthetic, after: Synthetic) -> None:
        super().__init__()
        self.now, self.after = store_of(before.objects), store_of(after.objects)

    async def get(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        return await self.now.get(name, start, length)

    async def list(self, prefix: str, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        if prefix == SEGMENTS:
            self.now = self.after
        async for info in self.now.list(prefix, start_after):
            yield info


@pytest.mark.parametrize("newest", [8, 13])
def test_what_a_query_cleans_up_while_its_checkpoint_is_read_is_not_lost(newest: int) -> None:
    """The query retains one batch; its index is in the commits alone, or in a roll-up as well."""
    before, after = Synthetic().virtual(9), Synthetic().virtual(newest + 1)
    for batch in range(newest):
        del after.objects[f"offsets/{batch}"]
        after.without_segments(batch)
    after.snapshots(newest + 1)

    async def work() -> Located:
        store = Running(before, after)
        return await locate(store, await read_checkpoint(store))

    assert asyncio.run(work()).assessment.lost == ()


def test_what_is_needed_and_nowhere_is_named() -> None:
    synthetic = Synthetic(executors=1).virtual(5).without_segments(3)
    lost = examine(synthetic)[1].assessment.lost
    assert {each.batch for each in lost} == {3}
    (segment,) = synthetic.documents[3].segments
    assert all(segment in each.what for each in lost)
    named = Synthetic().virtual(2)
    named.commit(2, list(named.names(2)), None)
    assert {each.batch for each in examine(named)[1].assessment.lost} == {2}


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-40],
        lambda data: data.replace(b'"crc32c":"', b'"crc32c":"f'),
        lambda data: without_line(data) + b"\n{}",
        lambda data: without_line(data) + b"\n\xff\xfe",
    ],
)
def test_a_damaged_index_line_is_named_and_spark_part_still_counts(
    damage: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    synthetic = Synthetic().virtual(3)
    synthetic.objects["commits/1"] = damage(synthetic.objects["commits/1"])
    found = document(synthetic, tmp_path, exit_code=1)
    assert [entry["object"] for entry in found["damaged"]] == ["commits/1"]
    assert [batch["batch"] for batch in found["batches"]] == [0, 1, 2]
    assert found["log"]["live_changelogs"] == 4


def test_an_index_of_other_batches_is_damage() -> None:
    synthetic = Synthetic().virtual(20)
    synthetic.objects[roll_up_object(10)] = synthetic.objects[roll_up_object(0)]
    assert list(examine(synthetic)[0].damaged) == [roll_up_object(10)]
    swapped = Synthetic().virtual(2)
    line = swapped.objects["commits/0"].rsplit(b"\n", 1)[1]
    swapped.objects["commits/1"] = without_line(swapped.objects["commits/1"]) + b"\n" + line
    assert list(examine(swapped)[0].damaged) == ["commits/1"]


@pytest.mark.parametrize(
    ("location", "url"),
    [
        ("s3a://bucket/a", "s3://bucket/a"),
        ("s3n://bucket/a", "s3://bucket/a"),
        ("file:/a/b", "file:///a/b"),
        ("file:/a#b/50%25?", "file:///a%23b/50%2525%3F"),
        ("file:///a/b", "file:///a/b"),
        ("/a/b", "/a/b"),
        ("hdfs://name/a", "hdfs://name/a"),
    ],
)
def test_locations_are_taken_as_spark_writes_them(location: str, url: str) -> None:
    assert store_url(location) == url


NAME = ChangelogName(0, 1, "default", 7, "id")


def piece(number: int, pieces: int = 0) -> FooterEntry:
    return FooterEntry(NAME, 44 + 100 * number, 100, number, pieces)


@pytest.mark.parametrize(
    ("found", "where"),
    [
        ([("b", piece(2, 3)), ("a", piece(0)), ("b", piece(1))], ["a 44", "b 144", "b 244"]),
        ([("a", piece(0, 1)), ("b", piece(0, 1))], ["b 44"]),
        ([("a", piece(0))], None),
        ([("a", piece(0)), ("a", piece(2, 3))], None),
        ([("a", piece(1, 2))], None),
    ],
)
def test_pieces_in_any_order_and_segment_make_an_entry_if_all_are_there(
    found: list[tuple[str, FooterEntry]], where: list[str] | None
) -> None:
    entry = assembled(NAME, found)
    assert (entry and [f"{each.segment} {each.offset}" for each in entry.pieces]) == where


def test_a_segment_that_disappears_is_passed_over_and_a_damaged_one_is_named() -> None:
    synthetic = Synthetic().virtual(2)
    by_counter = sorted(synthetic.segments(), key=lambda name: name.rpartition("-")[2])
    names = [name.rpartition("/")[2] for name in by_counter]
    sizes = {name: len(synthetic.objects[f"_tidelog/segments/{name}"]) for name in names}
    objects = dict(synthetic.objects)
    del objects[f"_tidelog/segments/{names[0]}"]
    objects[f"_tidelog/segments/{names[1]}"] = b"x" * sizes[names[1]]
    entries, damaged = asyncio.run(read_footers(store_of(objects), sizes))
    assert list(damaged) == [f"_tidelog/segments/{names[1]}"]
    assert {name.version for name in entries} == {2}
