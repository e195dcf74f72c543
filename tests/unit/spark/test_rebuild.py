"""`tidelog spark rebuild-index`: the same index again, from what the segments say."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import files, lay_out, tidelog
from tests.support.damage import flipped, truncated
from tests.unit.spark.synthetic import Synthetic, roll_up_object


def rebuild(directory: Path, *options: str, exit_code: int = 0) -> dict[str, Any]:
    result = tidelog("spark", "rebuild-index", directory, *options, "--json")
    assert result.exit_code == exit_code, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def without_line(data: bytes) -> bytes:
    return data.rsplit(b"\n", 1)[0]


def test_a_whole_index_stays_as_it_is(tmp_path: Path) -> None:
    synthetic = Synthetic().virtual(13)
    directory = lay_out(tmp_path, synthetic.objects)
    report = rebuild(directory)
    assert (report["lines"], report["roll_ups"], report["deleted"]) == ([], [], [])
    assert files(directory) == synthetic.objects


@pytest.mark.parametrize("pieces", [None, 10])
def test_a_missing_line_is_written_as_it_was(pieces: int | None, tmp_path: Path) -> None:
    synthetic = Synthetic(stores=("default", "left"), piece_bytes=pieces).virtual(3)
    lost = without_line(synthetic.objects["commits/1"])
    directory = lay_out(tmp_path, {**synthetic.objects, "commits/1": lost})
    report = rebuild(directory)
    assert report["lines"] == [{"first": 1, "last": 1, "changelogs": 4, "segments": 2}]
    assert files(directory) == synthetic.objects


@pytest.mark.parametrize("damage", [lambda d: d[:-9], lambda d: without_line(d) + b"\nnonsense"])
def test_a_damaged_line_is_written_as_it_was(damage: Any, tmp_path: Path) -> None:
    synthetic = Synthetic().virtual(3)
    hurt = damage(synthetic.objects["commits/1"])
    directory = lay_out(tmp_path, {**synthetic.objects, "commits/1": hurt})
    rebuild(directory)
    assert files(directory) == synthetic.objects


@pytest.mark.parametrize("damage", [None, flipped, truncated])
@pytest.mark.parametrize("purged", [0, 15])
def test_a_lost_roll_up_is_written_as_it_was(damage: Any, purged: int, tmp_path: Path) -> None:
    synthetic = Synthetic().virtual(23).purge(until=purged)
    hurt = dict(synthetic.objects)
    name = roll_up_object(10)
    if damage is None:
        del hurt[name]
    else:
        hurt[name] = damage(hurt[name])
    directory = lay_out(tmp_path, hurt)
    report = rebuild(directory)
    assert [(part["first"], part["last"]) for part in report["roll_ups"]] == [(10, 19)]
    assert files(directory) == synthetic.objects


def test_the_whole_index_can_be_written_again(tmp_path: Path) -> None:
    synthetic = Synthetic(operators=2).virtual(13)
    hurt = {
        name: without_line(data) if name.startswith("commits/") else data
        for name, data in synthetic.objects.items()
        if not name.startswith("_tidelog/index/")
    }
    directory = lay_out(tmp_path, hurt)
    rebuild(directory)
    assert files(directory) == synthetic.objects


def test_a_window_that_is_not_complete_gets_no_roll_up(tmp_path: Path) -> None:
    synthetic = Synthetic().virtual(9)
    directory = lay_out(tmp_path, synthetic.objects)
    assert rebuild(directory)["roll_ups"] == []


def test_attempts_that_lost_stay_out_of_the_index(tmp_path: Path) -> None:
    synthetic = Synthetic().virtual(12)
    for batch in (3, 11, 12):
        synthetic.write_segments(list(synthetic.names(batch, attempt="f")), model=False)
    hurt = dict(synthetic.objects)
    hurt["commits/11"] = without_line(hurt["commits/11"])
    del hurt[roll_up_object(0)]
    directory = lay_out(tmp_path, hurt)
    rebuild(directory)
    assert files(directory) == synthetic.objects


def test_commits_of_spark_alone_get_no_line(tmp_path: Path) -> None:
    synthetic = Synthetic().stock(4).virtual(4)
    directory = lay_out(tmp_path, synthetic.objects)
    assert rebuild(directory)["lines"] == []
    assert files(directory) == synthetic.objects


def test_a_damaged_roll_up_that_nothing_needs_goes(tmp_path: Path) -> None:
    synthetic = Synthetic().virtual(35).snapshots(20).snapshots(30).purge(until=25)
    hurt = {**synthetic.objects, roll_up_object(0): b"nonsense"}
    directory = lay_out(tmp_path, hurt)
    assert rebuild(directory)["deleted"] == [roll_up_object(0)]
    del hurt[roll_up_object(0)]
    assert files(directory) == hurt


def test_a_dry_run_says_the_same_and_writes_nothing(tmp_path: Path) -> None:
    synthetic = Synthetic().virtual(13)
    synthetic.objects["commits/12"] = without_line(synthetic.objects["commits/12"])
    del synthetic.objects[roll_up_object(0)]
    directory = lay_out(tmp_path, synthetic.objects)
    planned = rebuild(directory, "--dry-run")
    assert files(directory) == synthetic.objects
    done = rebuild(directory)
    assert planned == {**done, "dry_run": True}


def test_what_cannot_be_mended_is_named_and_the_rest_is_mended(tmp_path: Path) -> None:
    synthetic = Synthetic(executors=1).virtual(3)
    hurt = dict(synthetic.objects)
    hurt["commits/1"] = without_line(hurt["commits/1"])
    hurt["commits/2"] = without_line(hurt["commits/2"])
    segment = synthetic.segments()[2]
    hurt[segment] = truncated(hurt[segment])
    directory = lay_out(tmp_path, hurt)
    report = rebuild(directory, exit_code=1)
    assert [part["first"] for part in report["lines"]] == [1]
    assert {lost["batch"] for lost in report["lost"]} == {2}
    assert [problem["object"] for problem in report["damaged"]] == [segment]
    assert files(directory) == {**hurt, "commits/1": synthetic.objects["commits/1"]}


def test_checksum_files_of_rewritten_objects_go(tmp_path: Path) -> None:
    synthetic = Synthetic().virtual(10)
    hurt = {**synthetic.objects, "commits/4": without_line(synthetic.objects["commits/4"])}
    del hurt[roll_up_object(0)]
    folder, _, leaf = roll_up_object(0).rpartition("/")
    sidecars = {"commits/.4.crc": b"old", f"{folder}/.{leaf}.crc": b"old"}
    directory = lay_out(tmp_path, {**hurt, **sidecars})
    rebuild(directory)
    assert files(directory) == synthetic.objects


def test_rebuilding_says_that_the_query_must_be_stopped(tmp_path: Path) -> None:
    directory = lay_out(tmp_path, Synthetic().virtual(1).objects)
    assert "must be stopped" in tidelog("spark", "rebuild-index", directory).stderr
