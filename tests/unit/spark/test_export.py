"""`tidelog spark export` writes every live changelog as the file that Spark alone would have
written.
"""

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import files, lay_out, tidelog
from tests.support.damage import Damage, damaged, flipped, missing, truncated
from tests.unit.spark.synthetic import Synthetic, roll_up_object
from tests.wire.servers import S3Server
from tidelog.storage.local_files import TEMP_DIRECTORY

Objects = dict[str, bytes]


def run(directory: Path, *options: str) -> dict[str, Any]:
    result = tidelog("spark", "export", directory, *options, "--json")
    assert result.exit_code == 0, result.output
    assert "must be stopped" in result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def state_files(directory: Path) -> Objects:
    return {
        name.removeprefix("state/"): data
        for name, data in files(directory).items()
        if name.startswith("state/") and name.endswith(".changelog")
    }


def modelled(synthetic: Synthetic, since: int = 0) -> Objects:
    return {n.path: data for n, data in synthetic.model.items() if n.version >= since}


def after_a_part() -> Synthetic:
    """Another export had ended in the middle."""
    synthetic = Synthetic().virtual(3)
    name, data = next(iter(synthetic.model.items()))
    synthetic.objects[f"state/{name.path}"] = data
    return synthetic


def with_waiting_commits() -> Synthetic:
    """Commits that wait for their roll-up are no batches to restore."""
    synthetic = Synthetic().virtual(8).snapshots(5)
    for batch in range(5):
        del synthetic.objects[f"offsets/{batch}"]
    del synthetic.objects[synthetic.segments()[0]]
    return synthetic


def with_lost_window() -> Synthetic:
    synthetic = Synthetic().virtual(25).snapshots(20).purge(until=5)
    for name in (roll_up_object(0), *(f"commits/{batch}" for batch in range(5, 10))):
        del synthetic.objects[name]
    return synthetic


@pytest.mark.parametrize(
    ("synthetic", "since", "present", "expired"),
    [
        (Synthetic(operators=2, stores=("default", "left")).virtual(12), 0, 0, 0),
        (Synthetic(piece_bytes=10).virtual(3), 0, 0, 0),
        (after_a_part(), 0, 1, 0),
        (Synthetic().virtual(25).snapshots(10).snapshots(20).purge(until=15), 10, 0, 18),
        (with_waiting_commits(), 5, 0, 8),
        (with_lost_window(), 0, 0, 0),
        (Synthetic().virtual(13).without_line(12), 0, 0, 0),
        (Synthetic().stock(3).virtual(3), 0, 0, 0),
        (Synthetic().packed(13), 0, 0, 0),
        (Synthetic().packed(13).purge(until=10).without_line(12), 0, 0, 0),
    ],
    ids=[
        *("all stores", "pieces", "again", "expired", "waiting commits", "lost window"),
        *("lost line", "stock files", "in commits", "in commits, lost line"),
    ],
)
def test_export_writes_what_a_retained_batch_needs_as_it_was_and_nothing_else(
    synthetic: Synthetic, since: int, present: int, expired: int, tmp_path: Path
) -> None:
    directory = lay_out(tmp_path, synthetic.objects)
    before = state_files(directory)
    report = run(directory)
    assert state_files(directory) == modelled(synthetic, since)
    made = [data for name, data in modelled(synthetic, since).items() if name not in before]
    assert (report["written"], report["written_bytes"]) == (len(made), sum(map(len, made)))
    assert (report["present"], report["expired"]) == (present, expired)
    done = files(directory)
    assert {name: done[name] for name in synthetic.objects} == synthetic.objects

    again = run(directory)
    assert (again["written"], again["present"]) == (0, len(made) + present)
    assert files(directory) == done


def test_a_dry_run_reads_everything_and_writes_nothing(tmp_path: Path) -> None:
    synthetic = Synthetic().virtual(3)
    directory = lay_out(tmp_path, synthetic.objects)
    report = run(directory, "--dry-run", "--remove-log")
    assert (report["dry_run"], report["written"], report["stripped"]) == (True, 6, 3)
    assert report["removed"] == 6
    assert files(directory) == synthetic.objects


def test_with_remove_log_what_is_left_is_a_checkpoint_of_spark_alone(tmp_path: Path) -> None:
    synthetic = Synthetic().virtual(13).failed_attempt()
    # Checksum files of rewritten files go with them.
    sidecars = {f"commits/.{batch}.crc": b"old" for batch in range(13)}
    folder, _, leaf = next(iter(synthetic.model)).path.rpartition("/")
    sidecars[f"state/{folder}/.{leaf}.crc"] = b"old"
    directory = lay_out(tmp_path, synthetic.objects | sidecars)
    report = run(directory, "--remove-log")
    assert files(directory) == Synthetic().stock(13).objects
    assert {path.name for path in directory.iterdir()} == {
        "metadata",
        "commits",
        "offsets",
        "state",
    }
    assert (report["stripped"], report["removed"]) == (13, 13 * 2 + 2 + 1)
    again = run(directory, "--remove-log")
    assert (again["written"], again["stripped"], again["removed"]) == (0, 0, 0)


def test_with_remove_log_commits_lose_the_segments_within_them(tmp_path: Path) -> None:
    directory = lay_out(tmp_path, Synthetic().packed(13).objects)
    report = run(directory, "--remove-log")
    assert files(directory) == Synthetic().stock(13).objects
    assert (report["written"], report["stripped"]) == (26, 13)


def damaged_segment(damage: Damage) -> tuple[Synthetic, str]:
    synthetic = Synthetic(executors=1).virtual(3)
    segment = synthetic.segments()[1]
    synthetic.objects = damaged(synthetic.objects, segment, damage)
    return synthetic, segment


def damaged_commit() -> tuple[Synthetic, str]:
    synthetic = Synthetic().virtual(3)
    synthetic.objects["commits/1"] = b"nonsense"
    return synthetic, "object commits/1 is damaged"


def swapped_entries() -> tuple[Synthetic, str]:
    synthetic = Synthetic(executors=1).virtual(2)
    first, second = synthetic.documents[1].entries
    swapped = {first.name: replace(second, name=first.name)}
    swapped[second.name] = replace(first, name=second.name)
    synthetic.commit(1, list(swapped), swapped)
    return synthetic, "damaged"


def other_file() -> tuple[Synthetic, str]:
    synthetic = Synthetic().virtual(3)
    path = f"state/{next(iter(synthetic.model)).path}"
    synthetic.objects[path] = b"mine"
    return synthetic, f"file {path}"


def damaged_orphan() -> tuple[Synthetic, str]:
    """A segment that cannot say what it holds; without `--remove-log` it does not matter."""
    synthetic = Synthetic().virtual(3).failed_attempt()
    orphan = synthetic.segments()[-1]
    synthetic.objects[orphan] = truncated(synthetic.objects[orphan])
    return synthetic, orphan


@pytest.mark.parametrize(
    "case",
    [
        *map(damaged_segment, (flipped, truncated, missing)),
        *(damaged_commit(), swapped_entries(), other_file(), damaged_orphan()),
    ],
    ids=[*("flipped", "truncated", "missing", "commit", "swapped entries", "other file"), "orphan"],
)
def test_damage_is_named_and_nothing_is_removed_overwritten_or_wrong(
    case: tuple[Synthetic, str], tmp_path: Path
) -> None:
    synthetic, message = case
    directory = lay_out(tmp_path, synthetic.objects)
    result = tidelog("spark", "export", directory, "--remove-log")
    assert result.exit_code == 1
    assert message in result.stderr
    left = files(directory)
    assert {name: left[name] for name in synthetic.objects} == synthetic.objects
    # A write that was under way when another one failed may leave its temporary file.
    whole = {name: data for name, data in left.items() if not name.startswith(TEMP_DIRECTORY)}
    added = {name: data for name, data in whole.items() if name not in synthetic.objects}
    assert added.items() <= {f"state/{n}": d for n, d in modelled(synthetic).items()}.items()


def test_a_segment_that_nothing_needs_may_be_damaged_while_the_log_stays(tmp_path: Path) -> None:
    synthetic, _ = damaged_orphan()
    directory = lay_out(tmp_path, synthetic.objects)
    run(directory)
    assert state_files(directory) == modelled(synthetic)


def test_export_reads_and_writes_s3(moto: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in moto.env.items():
        monkeypatch.setenv(name, value)
    synthetic = Synthetic().virtual(12)
    with closing(moto.client()) as client:
        for name, data in synthetic.objects.items():
            client.put_object(Bucket=moto.bucket, Key=f"spark-export/{name}", Body=data)
        result = tidelog("spark", "export", f"s3a://{moto.bucket}/spark-export", "--remove-log")
        assert result.exit_code == 0, result.output
        listing = client.list_objects_v2(Bucket=moto.bucket, Prefix="spark-export/")
        found = {entry["Key"].removeprefix("spark-export/") for entry in listing["Contents"]}
    assert found == Synthetic().stock(12).objects.keys()
