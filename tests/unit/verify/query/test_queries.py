"""Every retained batch of a Spark query is restored, and what breaks it is named."""

from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

import pytest

from tests.support.damage import Damage, damaged, flipped, flipped_at, missing, truncated
from tests.unit.spark.synthetic import changelog, delete, delete_range, merge, put
from tests.unit.verify.query.spark_store import SparkStore, applied, segment_of, snapshot_files
from tests.unit.verify.stores import (
    assert_sound,
    report_on,
    verdicts,
    verified,
    with_objects,
    with_verdict,
)
from tidelog.spark.checkpoint.checkpoint import STATE
from tidelog.spark.format.changelog import Record
from tidelog.storage.memory import MemoryStore
from tidelog.storage.port import ObjectInfo
from tidelog.verify.fingerprint import fingerprint


@pytest.fixture
def query(tmp_path: Path) -> SparkStore:
    """Eight batches, snapshots at the versions 3 and 6."""
    store = SparkStore(tmp_path / "rocksdb")
    return store.batches(3).snapshot().batches(3).snapshot().batches(2)


ALL = set(range(8))


unusable = partial(with_verdict, verdict="unusable")
doubtful = partial(with_verdict, verdict="doubtful")


def test_every_batch_is_sound_and_has_the_rows_that_spark_has(query: SparkStore) -> None:
    before = dict(query.objects)
    report = verified(query.objects)
    assert_sound(report)
    assert report.layout == "query"
    (content,) = report.checkpoints[-1].contents
    rows = [row for model in query.models.values() for row in model.items()]
    assert (content.rows, content.fingerprint) == (len(rows), str(fingerprint(rows)))
    assert query.objects == before


def test_stores_of_a_join_are_told_apart(tmp_path: Path) -> None:
    sides = ("0/0/left-keyToNumValues", "0/0/right-keyToNumValues", "1/0")
    store = SparkStore(tmp_path / "rocksdb", sides).batches(3).snapshot(sides[1]).batches(2)
    report = verified(store.objects)
    assert report.passed
    assert {content.operator for content in report.checkpoints[-1].contents} == {"0", "1"}
    segment = segment_of(4)
    hurt = verified(damaged(store.objects, segment, missing))
    assert unusable(hurt) == {4}
    assert {p for problem in hurt.problems for p in problem.partitions} == set(sides)


EVERY_DAMAGE = pytest.mark.parametrize("damage", [flipped, truncated, missing])


@EVERY_DAMAGE
def test_a_damaged_segment_costs_the_batches_up_to_the_next_snapshot(
    query: SparkStore, damage: Damage
) -> None:
    for batch in sorted(ALL):
        name = segment_of(batch)
        report = verified(damaged(query.objects, name, damage))
        assert not report.passed
        assert {problem.where for problem in report.problems} == {name}
        # Snapshots are those of the batches 2 and 5.
        until = next((end for end in (2, 5) if end >= batch), 8)
        assert unusable(report) == set(range(batch, until)) and doubtful(report) == set()


@EVERY_DAMAGE
def test_a_damaged_snapshot_makes_spark_fall_back_where_that_is_possible(
    query: SparkStore, damage: Damage
) -> None:
    for name in [n for n in query.objects if n.endswith(".sst")]:
        report = verified(damaged(query.objects, name, damage))
        assert {problem.where for problem in report.problems} == {name}
        assert "fall back to an older snapshot" in str(report.problems[0].action)
        assert unusable(report) == set() and doubtful(report) in ({2, 3, 4}, {5, 6, 7})


@pytest.mark.parametrize("purged", [0, 4])
def test_batches_whose_changelogs_spark_alone_can_decompress_are_doubtful(
    purged: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    making = "tests.unit.verify.query.spark_store.changelog"
    monkeypatch.setattr(making, lambda *_: b"\x82SNAPPY\0")
    store = SparkStore(tmp_path / "rocksdb").batches(3).snapshot().batches(3).snapshot().batches(2)
    report = verified(store.purge(purged).objects)
    assert doubtful(report) == set(range(purged, 8)) - {2, 5}  # those have snapshots
    assert {problem.found for problem in report.problems} == {"snappy"}


def test_every_flipped_byte_counts_where_checksums_lie_beside_the_files(query: SparkStore) -> None:
    objects = query.with_checksums().objects
    kinds = {"sst": ".sst", "zip": ".zip", "commit": "commits/3", "offsets": "offsets/3"}
    for kind in kinds.values():
        name = next(n for n in objects if kind in n and not n.endswith(".crc"))
        for share in (0, 0.2, 0.5, 0.9, 1):
            at = min(int(len(objects[name]) * share), len(objects[name]) - 1)
            report = verified(damaged(objects, name, flipped_at(at, 32)))
            assert not report.passed, f"{name} byte {at}"
            assert {problem.where for problem in report.problems} == {name}


@pytest.mark.parametrize("damage", [flipped, truncated])
def test_a_damaged_commit_line_costs_its_batch_and_a_damaged_index_none(
    query: SparkStore, damage: Callable[[bytes], bytes]
) -> None:
    spark, _, line = query.objects["commits/4"].rpartition(b"\n")
    index = verified({**query.objects, "commits/4": spark + b"\n" + damage(line)})
    assert unusable(index) == set() and not index.passed
    assert [p.where for p in index.problems] == ["commits/4"]
    assert "a restarted query writes" in str(index.problems[0].action)

    lines = verified({**query.objects, "commits/4": b"v2\n{" + b"\n" + line})
    assert unusable(lines) == {4}
    assert {p.where for p in lines.problems} == {"commits/4"}


@pytest.mark.parametrize("batch", [1, 4, 6])
@pytest.mark.parametrize("folder", ["commits", "offsets"])
def test_a_missing_commit_or_offsets_cost_their_batch(
    query: SparkStore, folder: str, batch: int
) -> None:
    name = f"{folder}/{batch}"
    report = verified(damaged(query.objects, name, missing))
    # A start reads the offsets of its batch and of the one before.
    assert unusable(report) == ({batch, batch + 1} if folder == "offsets" else {batch})
    assert {problem.where for problem in report.problems} == {name}


def test_a_wrong_snapshot_contradicts_the_changelogs(query: SparkStore, tmp_path: Path) -> None:
    version, id_ = query.versions["0/1"][5]
    name = f"state/0/1/{version}_{id_}.zip"
    wrong = {b"other": b"rows"}
    objects = {**query.objects, **snapshot_files(tmp_path / "wrong", "0/1", name, wrong)}
    (problem,) = verified(objects).problems
    assert problem.check == "redundancy" and problem.where == name
    assert problem.partitions == ("0/1",) and problem.unusable == ()
    # Batch 2 agrees with a snapshot; what came after it may be the wrong side of the two.
    assert problem.doubtful == (3, 4, 5, 6, 7)
    assert "found 1 row," in f"found {problem.found}"


def test_a_wrong_changelog_contradicts_the_snapshot_behind_it(tmp_path: Path) -> None:
    store = SparkStore(tmp_path / "rocksdb", ("0/0",)).batches(3, virtual=False).snapshot()
    name = f"state/0/0/2_{store.versions['0/0'][1][1]}.changelog"
    wrong = changelog([put(b"other", b"row")], store.versions["0/0"][:1])
    (problem,) = verified({**store.objects, name: wrong}).problems
    assert problem.check == "redundancy" and problem.doubtful == (0, 1, 2)


def test_a_lineage_of_another_history_is_found(tmp_path: Path) -> None:
    store = SparkStore(tmp_path / "rocksdb", ("0/0",)).batches(3, virtual=False)
    name = f"state/0/0/3_{store.versions['0/0'][2][1]}.changelog"
    lineage = [store.versions["0/0"][0], (2, "of-another-attempt")]
    hurt = {**store.objects, name: changelog([put(b"k", b"v")], lineage)}
    report = verified(hurt)
    problem = next(each for each in report.problems if each.check == "lineage")
    assert problem.where == name and "of-another-attempt" in problem.found
    assert unusable(report) == {2}  # Spark follows the lineage


def test_ranges_are_deleted_and_later_rows_stay(tmp_path: Path) -> None:
    store = SparkStore(tmp_path / "rocksdb", ("0/0",))
    records: list[list[Record]] = [
        [put(bytes([key]), b"v") for key in range(20)],
        [put(b"\x05x", b"new"), delete_range(b"\x03", b"\x09"), put(b"\x04", b"again")],
        [delete(b"\x00"), delete(b"\x00"), put(b"\x00", b"back"), delete(b"absent")],
    ]
    for each in records:
        store.batch({"0/0": each})
    store.snapshot()
    report = verified(store.objects)
    assert report.passed and [c.equal for c in report.checkpoints] == [0, 0, 1]
    assert report.checkpoints[-1].rows == len(store.models["0/0"]) == 15


def test_state_below_what_spark_keeps_is_expired_and_no_problem(tmp_path: Path) -> None:
    """Spark has kept the snapshot of version 14 and what came after it."""
    store = SparkStore(tmp_path / "rocksdb").batches(11).snapshot().batches(3).snapshot()
    store.batches(2)
    for directory in store.directories:
        store.clean_up(directory, 14)
    report = verified(store.purge(12).objects)
    assert report.problems == () and report.passed
    assert verdicts(report) == {12: "expired", 13: "sound", 14: "sound", 15: "sound"}


def test_a_chosen_batch_is_compared_with_what_the_snapshot_before_its_own_makes(
    query: SparkStore,
) -> None:
    for batch in ("latest", 6, 5, 4, 2):
        report = verified(query.objects, batch)
        assert report.passed and report.unchecked == ()
        assert report.checkpoints[0].equal == 2
    early = verified(query.objects, 1)
    assert early.unchecked == tuple((d, "only one snapshot", (1,)) for d in query.directories)


class Losing(MemoryStore):
    """Loses objects when the newest offsets are read, or with `listed` after state was listed."""

    gone: tuple[str, ...] = ()
    listed = False

    async def get(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        data = await super().get(name, start, length)
        if name == "offsets/7" and not self.listed:
            await self._lose()
        return data

    async def list(self, prefix: str, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        async for info in super().list(prefix, start_after):
            yield info
        if prefix == STATE and self.listed:
            await self._lose()

    async def _lose(self) -> None:
        for name in self.gone:
            await self.delete(name)
        self.gone = ()


@pytest.mark.parametrize(
    ("patterns", "segments", "listed", "gone"),
    [
        (("offsets/0", "offsets/1", "offsets/2"), 3, False, 3),
        (("/3_", "/1_"), 4, False, 5),
        (("/6_",), 0, True, 0),
    ],
    ids=["purged", "cleaned up between two batches", "cleaned up before it is looked for"],
)
def test_what_spark_removes_meanwhile_is_gone_and_no_damage(
    query: SparkStore, patterns: tuple[str, ...], segments: int, listed: bool, gone: int
) -> None:
    store = with_objects(Losing(), query.objects)
    store.listed = listed
    store.gone = (
        *(name for name in query.objects if any(each in name for each in patterns)),
        *(segment_of(batch) for batch in range(segments)),
    )
    report = report_on(store)
    assert report.problems == () and report.passed
    assert verdicts(report) == {n: "gone" if n < gone else "sound" for n in ALL}


def test_the_model_of_these_tests_is_that_of_spark() -> None:
    rows = applied({b"a": b"1"}, [put(b"b", b"2"), delete(b"a"), merge(b"b", b"3")])
    assert rows == {b"b": b"23"}
