"""Every retained batch of a Spark query is restored, and what breaks it is named."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.support.damage import damaged, flipped, missing, truncated
from tests.unit.spark.synthetic import PROVIDER, roll_up_object
from tests.unit.verify.query.spark_store import (
    SparkStore,
    applied,
    changelog,
    delete,
    delete_range,
    merge,
    put,
    segment_of,
    snapshot_files,
)
from tests.unit.verify.stores import report_on, verdicts, verified, with_objects
from tidelog.errors import ObjectNotFoundError, RestoreError
from tidelog.spark.checkpoint.checkpoint import STATE
from tidelog.spark.format.changelog import Record
from tidelog.storage.memory import MemoryStore
from tidelog.storage.port import ObjectInfo
from tidelog.verify.fingerprint import fingerprint
from tidelog.verify.report import VerifyReport


@pytest.fixture
def query(tmp_path: Path) -> SparkStore:
    """Eight batches, snapshots at the versions 3 and 6."""
    store = SparkStore(tmp_path / "rocksdb")
    return store.batches(3).snapshot().batches(3).snapshot().batches(2)


ALL = set(range(8))


def unusable(report: VerifyReport) -> set[int]:
    return {number for number, verdict in verdicts(report).items() if verdict == "unusable"}


def doubtful(report: VerifyReport) -> set[int]:
    return {number for number, verdict in verdicts(report).items() if verdict == "doubtful"}


def test_every_batch_is_sound_and_has_the_rows_that_spark_has(query: SparkStore) -> None:
    before = dict(query.objects)
    report = verified(query.objects)
    assert report.problems == () and report.passed and report.layout == "query"
    assert set(verdicts(report).values()) == {"sound"}
    (content,) = report.checkpoints[-1].contents
    rows = [row for model in query.models.values() for row in model.items()]
    assert (content.rows, content.fingerprint) == (len(rows), str(fingerprint(rows)))
    assert query.objects == before


def test_batches_behind_a_second_snapshot_are_restored_in_two_ways(query: SparkStore) -> None:
    report = verified(query.objects)
    assert [c.equal for c in report.checkpoints] == [0, 0, 2, 2, 2, 2, 2, 2]
    assert report.unchecked == tuple((d, "only one snapshot", (0, 1)) for d in query.directories)


@pytest.mark.parametrize(
    "grow",
    [
        lambda store: store.batches(5, virtual=False),
        lambda store: store.batches(3, virtual=False).snapshot().batches(3),
        lambda store: store.batches(12).snapshot("0/0").batches(4),
        lambda store: store.batches(4).snapshot().batches(9).purge(6),
        lambda store: store.batches(2).snapshot().batches(2).with_checksums(),
    ],
    ids=["files", "files, then the log", "rolled up", "purged", "checksums"],
)
def test_checkpoints_of_every_age_are_sound(
    grow: Callable[[SparkStore], SparkStore], tmp_path: Path
) -> None:
    report = verified(grow(SparkStore(tmp_path / "rocksdb")).objects)
    assert report.problems == () and report.passed
    assert set(verdicts(report).values()) == {"sound"}


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


@pytest.mark.parametrize("damage", [flipped, truncated, missing])
def test_a_damaged_segment_costs_the_batches_up_to_the_next_snapshot(
    query: SparkStore, damage: Callable[[bytes], bytes | None]
) -> None:
    for batch in sorted(ALL):
        name = segment_of(batch)
        report = verified(damaged(query.objects, name, damage))
        assert not report.passed
        assert {problem.where for problem in report.problems} == {name}
        # Snapshots are those of the batches 2 and 5.
        until = next((end for end in (2, 5) if end >= batch), 8)
        assert unusable(report) == set(range(batch, until)) and doubtful(report) == set()


@pytest.mark.parametrize("damage", [flipped, truncated, missing])
def test_a_damaged_snapshot_makes_spark_fall_back_where_that_is_possible(
    query: SparkStore, damage: Callable[[bytes], bytes | None]
) -> None:
    for name in [n for n in query.objects if n.endswith(".sst")]:
        report = verified(damaged(query.objects, name, damage))
        assert {problem.where for problem in report.problems} == {name}
        assert "fall back to an older snapshot" in str(report.problems[0].action)
        assert unusable(report) == set() and doubtful(report) in ({2, 3, 4}, {5, 6, 7})


@pytest.mark.parametrize("damage", [flipped, truncated])
def test_without_an_older_way_a_damaged_snapshot_costs_its_batches_and_is_all_that_is_told(
    old_query: SparkStore, damage: Callable[[bytes], bytes | None]
) -> None:
    name = next(n for n in old_query.objects if "0/1/14_" in n and n.endswith(".zip"))
    report = verified(damaged(old_query.purge(13).objects, name, damage))
    assert {problem.where for problem in report.problems} == {name}
    assert unusable(report) == {13, 14, 15} and doubtful(report) == set()


def test_changelogs_before_a_damaged_snapshot_may_be_cleaned_up(tmp_path: Path) -> None:
    store = SparkStore(tmp_path / "rocksdb").batches(4).snapshot().batches(2).purge(3)
    # Version 2 is deleted, while the index and the other segments still have versions 1 and 3.
    del store.objects[segment_of(1)]
    sst = next(name for name in store.objects if "state/0/1/SSTs" in name)
    assert verified(store.objects).passed
    report = verified(damaged(store.objects, sst, flipped))
    assert {problem.where for problem in report.problems} == {sst}
    assert unusable(report) == {3, 4, 5}


def test_every_flipped_byte_counts_where_checksums_lie_beside_the_files(query: SparkStore) -> None:
    objects = query.with_checksums().objects
    kinds = {"sst": ".sst", "zip": ".zip", "commit": "commits/3", "offsets": "offsets/3"}
    for kind in kinds.values():
        name = next(n for n in objects if kind in n and not n.endswith(".crc"))
        for share in (0, 0.2, 0.5, 0.9, 1):
            at = min(int(len(objects[name]) * share), len(objects[name]) - 1)
            data = objects[name]
            hurt = {**objects, name: data[:at] + bytes([data[at] ^ 32]) + data[at + 1 :]}
            report = verified(hurt)
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
    assert unusable(report) == {batch}
    assert {problem.where for problem in report.problems} == {name}


def test_an_index_that_only_footers_replace_is_told_and_costs_nothing(tmp_path: Path) -> None:
    store = SparkStore(tmp_path / "rocksdb").batches(8).snapshot().batches(4).purge(9)
    name = roll_up_object(0)
    for damage in (missing, flipped, truncated):
        report = verified(damaged(store.objects, name, damage))
        assert {problem.where for problem in report.problems} == {name}
        assert not report.passed and set(verdicts(report).values()) == {"sound"}
        assert "a restarted query writes" in str(report.problems[0].action)


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
    assert "found 1 rows" in f"found {problem.found}"


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
    (problem,) = verified(hurt).problems
    assert problem.check == "lineage" and problem.where == name and problem.doubtful == (2,)
    assert "of-another-attempt" in problem.found


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


def test_state_that_only_spark_can_follow_is_said_to_be_so(tmp_path: Path) -> None:
    store = SparkStore(tmp_path / "rocksdb", ("0/0",)).batches(1)
    store.batch({"0/0": [merge(b"list", b"element")]})
    store.batches(1).snapshot().batches(1)
    report = verified(store.objects)
    assert report.passed and set(verdicts(report).values()) == {"sound"}
    appended = ("0/0", "it appends to values, which only Spark can follow", (1, 2, 3))
    assert appended in report.unchecked
    assert [c.rows for c in report.checkpoints[1:]] == [None, None, None]
    segment = segment_of(3)
    assert unusable(verified(damaged(store.objects, segment, flipped))) == {3}


def test_rows_with_checksums_of_their_own_are_not_compared(query: SparkStore) -> None:
    said = b'"conf":{"spark.sql.streaming.stateStore.rowChecksum.enabled":"true",'
    for batch in ALL:
        name = f"offsets/{batch}"
        old = b'"conf": {'
        assert old in query.objects[name]
        query.objects[name] = query.objects[name].replace(old, said)
    report = verified(query.objects)
    assert report.passed and PROVIDER
    assert {reason for _, reason, _ in report.unchecked} == {
        "rows carry checksums that only Spark can read"
    }


def test_a_changelog_in_a_compression_that_is_not_read_is_doubtful(tmp_path: Path) -> None:
    store = SparkStore(tmp_path / "rocksdb", ("0/0",)).batches(3, virtual=False)
    name = f"state/0/0/2_{store.versions['0/0'][1][1]}.changelog"
    report = verified({**store.objects, name: b"\x82SNAPPY\0rest"})
    (problem,) = report.problems
    assert problem.where == name and doubtful(report) == {1, 2}
    assert "read it with Spark" in str(problem.action)


@pytest.fixture
def old_query(tmp_path: Path) -> SparkStore:
    """Sixteen batches; Spark has kept the snapshot of version 14 and what came after it."""
    store = SparkStore(tmp_path / "rocksdb").batches(11).snapshot().batches(3).snapshot()
    store.batches(2)
    for directory in store.directories:
        store.clean_up(directory, 14)
    return store


def test_state_below_what_spark_keeps_is_expired_and_no_problem(old_query: SparkStore) -> None:
    report = verified(old_query.purge(12).objects)
    assert report.problems == () and report.passed
    assert verdicts(report) == {12: "expired", 13: "sound", 14: "sound", 15: "sound"}


def test_state_of_younger_batches_does_not_expire(old_query: SparkStore) -> None:
    report = verified(old_query.purge(10).objects)
    assert verdicts(report) == {
        **dict.fromkeys((10, 11), "expired"),
        12: "unusable",
        **dict.fromkeys((13, 14, 15), "sound"),
    }


def test_a_snapshot_without_a_changelog_of_its_version_suffices(tmp_path: Path) -> None:
    store = SparkStore(tmp_path / "rocksdb", ("0/0",)).batches(4, virtual=False).snapshot()
    store.batches(1, virtual=False)
    del store.objects[f"state/0/0/4_{store.versions['0/0'][3][1]}.changelog"]
    report = verified(store.objects)
    assert report.problems == () and report.passed


def test_an_id_that_is_nowhere_is_lost(tmp_path: Path) -> None:
    store = SparkStore(tmp_path / "rocksdb").batches(4, virtual=False)
    name = f"state/0/1/3_{store.versions['0/1'][2][1]}.changelog"
    report = verified(damaged(store.objects, name, missing))
    assert {problem.where for problem in report.problems} == {name}
    assert unusable(report) == {2, 3}


def test_a_checkpoint_of_format_1_cannot_be_verified_and_says_so() -> None:
    objects = {"offsets/0": b"v1\n{}\n1", "commits/0": b'v1\n{"nextBatchWatermarkMs":0}'}
    (problem,) = verified(objects).problems
    assert problem.where == "commits/0" and "format 2" in problem.expected
    assert problem.unusable == (0,)


def test_a_header_of_another_segment_is_found(query: SparkStore) -> None:
    one, other = (segment_of(n) for n in (6, 7))
    swapped = {**query.objects, one: query.objects[other], other: query.objects[one]}
    report = verified(swapped)
    assert {problem.where for problem in report.problems} == {one, other}
    assert unusable(report) == {6, 7}


def test_a_chosen_batch_is_compared_with_what_the_snapshot_before_its_own_makes(
    query: SparkStore,
) -> None:
    for batch in ("latest", 6, 5, 4, 2):
        report = verified(query.objects, batch)
        assert report.passed and report.unchecked == ()
        assert report.checkpoints[0].equal == 2
    early = verified(query.objects, 1)
    assert early.unchecked == tuple((d, "only one snapshot", (1,)) for d in query.directories)


def test_a_chosen_batch_whose_snapshot_contradicts_what_came_before_is_doubtful(
    query: SparkStore, tmp_path: Path
) -> None:
    version, id_ = query.versions["0/1"][5]
    name = f"state/0/1/{version}_{id_}.zip"
    wrong = snapshot_files(tmp_path / "wrong", "0/1", name, {b"other": b"rows"})
    report = verified({**query.objects, **wrong}, "latest")
    (problem,) = report.problems
    assert problem.check == "redundancy" and problem.where == name
    assert problem.doubtful == (7,) and problem.unusable == ()


def test_damage_before_the_snapshot_of_a_chosen_batch_costs_only_the_comparison(
    query: SparkStore,
) -> None:
    name = segment_of(4)
    report = verified(damaged(query.objects, name, missing), "latest")
    assert report.checkpoints[0].verdict == "sound"
    reason = "what lies between the snapshot before and this one is not all there"
    assert report.unchecked == tuple((d, reason, (7,)) for d in query.directories)


def test_one_batch_can_be_chosen(query: SparkStore) -> None:
    assert list(verdicts(verified(query.objects, "latest"))) == [7]
    segment = segment_of(7)
    assert verified(damaged(query.objects, segment, missing), 5).passed
    with pytest.raises(ObjectNotFoundError, match="one of 0 to 7"):
        verified(query.objects, 8)


def test_a_query_without_a_batch_is_an_error() -> None:
    with pytest.raises(RestoreError, match="first batch"):
        verified({"offsets/0": b"v1\n{}\n1"})


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
