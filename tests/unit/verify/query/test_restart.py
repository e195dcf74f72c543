"""What verify, check, export and the data source say of a query is what a restarted Spark does."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import lay_out, tidelog
from tests.support.damage import Damage, damaged, flipped, missing
from tests.unit.spark.source.reading import read
from tests.unit.verify.query.spark_store import SparkStore
from tests.unit.verify.stores import assert_sound, verdicts, verified, with_verdict

Objects = dict[str, bytes]

NEWEST = 7
OF_THE_QUERY = {
    "state/0/_metadata/metadata": b'v1\n{"operatorInfo":{"operatorId":0}}',
    "state/0/0/_metadata/schema": b"\0\2v2\0\0\0\1\0\2{}",
}


@pytest.fixture
def query(tmp_path: Path) -> SparkStore:
    """Eight batches, snapshots at the versions 3 and 6, and what Spark keeps of the query."""
    store = SparkStore(tmp_path / "rocksdb")
    store.batches(3).snapshot().batches(3).snapshot().batches(2)
    store.objects.update(
        {
            **OF_THE_QUERY,
            **{f"sources/0/{batch}": b'v1\n{"path":"a"}' for batch in (3, 4, 5, 6, 7)},
            "sources/0/2.compact": b'v1\n{"path":"a"}',
        }
    )
    for batch in range(NEWEST + 1):
        spark, _, _ = store.objects[f"offsets/{batch}"].rpartition(b"\n")
        store.objects[f"offsets/{batch}"] = spark + b'\n{"logOffset":%d}' % batch
    return store


unusable = partial(with_verdict, verdict="unusable")
doubtful = partial(with_verdict, verdict="doubtful")


def of_newer_snapshots(work: Path) -> SparkStore:
    """Twelve batches with snapshots at 3, 6 and 9, of which Spark has kept what 6 leads to."""
    store = SparkStore(work / "rocksdb")
    store.batches(3).snapshot().batches(3).snapshot().batches(3).snapshot().batches(3)
    for directory in store.directories:
        store.clean_up(directory, 6)
    return store.purge(6)


def snapshots_of(store: SparkStore, version: int) -> list[str]:
    """The snapshots of a version, of all state stores."""
    ids = {directory: store.versions[directory][version - 1] for directory in store.directories}
    return [f"state/{directory}/{n}_{id_}.zip" for directory, (n, id_) in ids.items()]


def hurt_by(objects: Objects, names: list[str], damage: Damage) -> Objects:
    for name in names:
        objects = damaged(objects, name, damage)
    return objects


def test_versions_whose_lineage_reaches_no_snapshot_are_unusable_although_an_older_one_is_there(
    tmp_path: Path,
) -> None:
    store = of_newer_snapshots(tmp_path)
    assert_sound(verified(store.objects))
    report = verified(hurt_by(store.objects, snapshots_of(store, 9), missing))
    assert unusable(report) == {9, 10, 11}
    assert verdicts(report)[8] == "sound"  # its changelog names the snapshot of 6
    assert {problem.where for problem in report.problems} == {"state/0/0", "state/0/1"}
    assert "no snapshot" in report.problems[0].found


def test_a_damaged_snapshot_is_doubtful_only_where_spark_has_another_way(tmp_path: Path) -> None:
    store = of_newer_snapshots(tmp_path)
    report = verified(hurt_by(store.objects, snapshots_of(store, 9), flipped))
    assert unusable(report) == {8, 9, 10, 11} and doubtful(report) == set()
    assert "fall back" not in str(report.problems[0].action)
    whole = SparkStore(tmp_path / "whole")
    whole.batches(3).snapshot().batches(3).snapshot().batches(3).snapshot().batches(3)
    report = verified(hurt_by(whole.objects, snapshots_of(whole, 9), flipped))
    assert doubtful(report) == {8, 9, 10, 11} and unusable(report) == set()
    assert "fall back" in str(report.problems[0].action)


def test_spark_check_follows_the_lineage_of_the_newest_versions(tmp_path: Path) -> None:
    store = of_newer_snapshots(tmp_path / "made")
    hurt = hurt_by(store.objects, snapshots_of(store, 9), missing)
    failed = spark_check(lay_out(tmp_path / "hurt", hurt))
    assert set(failed) == {"restart"} and "no snapshot" in failed["restart"]
    assert spark_check(lay_out(tmp_path / "whole", store.objects)) == {}


def spark_check(directory: Path) -> dict[str, str]:
    """What the checks of a checkpoint find wrong."""
    result = tidelog("spark", "check", directory, "--deep", "--json")
    findings: list[dict[str, Any]] = json.loads(result.stdout)["findings"]
    return {f["check"]: f["found"] for f in reversed(findings) if f["verdict"] == "fail"}


def without(*names: str) -> Callable[[Objects], Objects]:
    return lambda objects: {name: data for name, data in objects.items() if name not in names}


def with_version(version: bytes) -> Callable[[Objects], Objects]:
    name = f"commits/{NEWEST}"
    return lambda objects: {**objects, name: version + objects[name][2:]}


def holding(name: str, data: bytes) -> Callable[[Objects], Objects]:
    return lambda objects: {**objects, name: data}


REFUSED = {
    "no metadata": (without("metadata"), "metadata"),
    "metadata without an id": (holding("metadata", b"{}"), "metadata"),
    "no offsets of the newest commit": (without("offsets/7"), "offsets/7"),
    "no offsets of the batch before": (without("offsets/6"), "offsets/6"),
    "offsets of a newer Spark": (holding("offsets/7", b"v3\n{}\n0"), "offsets/7"),
    "offsets two ahead": (without("commits/6", "commits/7"), "commits/6"),
    "a commit of version 1 with ids": (with_version(b"v1"), "commits/7"),
    "a commit of version 3 without sinks": (with_version(b"v3"), "commits/7"),
    "a commit of an unknown version": (with_version(b"v4"), "commits/7"),
    "no compact log of a source": (without("sources/0/2.compact"), "sources/0/0"),
    "no newest log of a source": (without("sources/0/7"), "sources/0/7"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_spark_refuses_is_named_by_every_command(
    case: str, query: SparkStore, tmp_path: Path
) -> None:
    change, name = REFUSED[case]
    objects = change(query.objects)
    report = verified(objects)
    assert not report.passed and name in {problem.where for problem in report.problems}
    newest = max(verdicts(report))
    assert newest in unusable(report)
    directory = lay_out(tmp_path / "hurt", objects)
    failed = spark_check(directory)
    assert name in failed["restart"]
    exported = tidelog("spark", "export", directory, "--remove-log")
    assert exported.exit_code == 1 and name in exported.stderr
    listed = read(directory, view="checkpoints")
    assert any(name in str(row["error"]) for row in listed)


def test_without_any_commit_beside_state_nothing_can_be_restarted(
    query: SparkStore, tmp_path: Path
) -> None:
    objects = without(*(f"commits/{batch}" for batch in range(NEWEST + 1)))(query.objects)
    directory = lay_out(tmp_path / "hurt", objects)
    assert "commits/6" in spark_check(directory)["restart"]
    refused = tidelog("verify", directory, "--engine", "local")
    assert refused.exit_code == 1 and "commits/6" in refused.stderr
    assert "stop the query" not in refused.stderr
    offsets = without(*(f"offsets/{batch}" for batch in range(NEWEST + 1)))(objects)
    left = spark_check(lay_out(tmp_path / "state alone", offsets))
    assert "offsets/" in left["restart"]


def test_a_copy_with_commits_older_than_its_offsets_is_not_taken_for_a_running_query(
    query: SparkStore, tmp_path: Path
) -> None:
    names = [f"commits/{batch}" for batch in range(4, NEWEST + 1)]
    names += [f"offsets/{batch}" for batch in range(5)]
    directory = lay_out(tmp_path / "torn", without(*names)(query.objects))
    refused = tidelog("verify", directory, "--engine", "local")
    assert refused.exit_code == 1 and "commits/6" in refused.stderr
    assert "stop the query" not in refused.stderr


@pytest.mark.parametrize("checksums", [False, True])
def test_damage_to_any_object_is_found_or_the_object_is_named_as_not_covered(
    checksums: bool, tmp_path: Path
) -> None:
    store = SparkStore(tmp_path / "rocksdb", ("0/0",)).batches(2).snapshot().batches(1)
    store.objects.update(OF_THE_QUERY)
    objects = (store.with_checksums() if checksums else store).objects
    whole = verified(objects)
    assert whole.passed
    not_covered = dict(whole.unseen)
    for name in (each for each in objects if not each.endswith(".crc")):
        found = verified(damaged(objects, name, flipped))
        assert not found.passed or (name in not_covered and not checksums), name
        # Without the oldest offsets it is a checkpoint of which Spark has purged a batch.
        if name != "offsets/0" and not checksums:
            gone = verified(damaged(objects, name, missing))
            assert not gone.passed or name in not_covered, name
