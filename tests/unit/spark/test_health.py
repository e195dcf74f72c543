"""`tidelog spark doctor` on checkpoints: whose they are, what is damaged, what to do."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import files, lay_out, tidelog
from tests.support.damage import flipped, truncated
from tests.unit.spark.synthetic import Synthetic, offsets, roll_up_object


def findings(directory: Path, *options: str) -> list[dict[str, Any]]:
    """What doctor finds in a checkpoint, without its findings on this machine and settings."""
    result = tidelog("spark", "doctor", directory, *options, "--json")
    found: list[dict[str, Any]] = json.loads(result.stdout)["findings"]
    of_checkpoint = [f for f in found if f["check"] in CHECKS]
    failed = any(f["verdict"] == "fail" for f in found)
    assert result.exit_code == int(failed)
    return of_checkpoint


CHECKS = {
    *("checkpoint", "stored-provider", "stored-format", "offsets", "damage", "complete", "lost"),
    *("index", "orphans", "contents"),
}


def with_verdict(found: list[dict[str, Any]], verdict: str) -> dict[str, dict[str, Any]]:
    return {f["check"]: f for f in found if f["verdict"] == verdict}


def test_a_whole_checkpoint_is_fine_and_untouched(tmp_path: Path) -> None:
    synthetic = Synthetic().virtual(13)
    directory = lay_out(tmp_path, synthetic.objects)
    found = findings(directory, "--deep")
    assert {f["verdict"] for f in found} == {"ok"}
    assert {f["check"] for f in found} == {
        *("checkpoint", "stored-provider", "stored-format", "complete", "contents")
    }
    assert files(directory) == synthetic.objects


def test_a_place_without_a_checkpoint_is_fine(tmp_path: Path) -> None:
    found = findings(tmp_path / "new")
    assert [(f["check"], f["verdict"]) for f in found] == [("checkpoint", "ok")]
    assert not (tmp_path / "new").exists()


def test_a_stock_checkpoint_is_said_to_be_one(tmp_path: Path) -> None:
    found = findings(lay_out(tmp_path, Synthetic().stock(3).objects))
    assert "of Spark alone" in with_verdict(found, "ok")["checkpoint"]["found"]


def test_a_checkpoint_of_format_1_is_refused_because_it_keeps_its_format(tmp_path: Path) -> None:
    objects = {"offsets/0": offsets(0), "commits/0": b'v1\n{"nextBatchWatermarkMs":0}'}
    found = findings(lay_out(tmp_path, objects))
    assert "another directory" in with_verdict(found, "fail")["stored-format"]["action"]


def test_a_checkpoint_of_another_provider_is_refused(tmp_path: Path) -> None:
    objects = {"offsets/0": offsets(0, provider="org.example.Mine")}
    failed = with_verdict(findings(lay_out(tmp_path, objects)), "fail")
    assert "start a new checkpoint" in failed["stored-provider"]["action"]


def test_damaged_offsets_are_named(tmp_path: Path) -> None:
    synthetic = Synthetic().virtual(2)
    synthetic.objects["offsets/1"] = b"v1\nnonsense"
    failed = with_verdict(findings(lay_out(tmp_path, synthetic.objects)), "fail")
    assert "offsets/1" in failed["offsets"]["found"]


@pytest.mark.parametrize("name", ["commits/2", roll_up_object(0)])
def test_a_damaged_index_is_mended_by_rebuilding_it(name: str, tmp_path: Path) -> None:
    synthetic = Synthetic().virtual(12)
    synthetic.objects[name] = synthetic.objects[name][:-9]
    directory = lay_out(tmp_path, synthetic.objects)
    failed = with_verdict(findings(directory), "fail")
    assert name in failed["damage"]["found"]
    assert "rebuild-index" in failed["damage"]["action"]
    tidelog("spark", "rebuild-index", directory)
    assert with_verdict(findings(directory), "fail") == {}


def test_an_index_that_only_footers_replace_is_doubtful(tmp_path: Path) -> None:
    synthetic = Synthetic().virtual(3)
    synthetic.objects["commits/1"] = synthetic.objects["commits/1"].rsplit(b"\n", 1)[0]
    found = findings(lay_out(tmp_path, synthetic.objects))
    assert "rebuild-index" in with_verdict(found, "warn")["index"]["action"]
    assert with_verdict(found, "fail") == {}


def test_what_a_roll_up_says_of_batches_that_ran_again_since_is_not_missed(
    tmp_path: Path,
) -> None:
    synthetic = Synthetic().virtual(10)
    for batch in (8, 9):
        undone = set(synthetic.documents[batch].segments)
        names = list(synthetic.names(batch, attempt="b"))
        synthetic.commit(batch, names, synthetic.write_segments(names))
        for segment in undone:
            del synthetic.objects[f"_tidelog/segments/{segment}"]
    found = findings(lay_out(tmp_path, synthetic.objects))
    assert with_verdict(found, "fail") == {}
    assert any("20 live changelogs" in each["found"] for each in found)


def test_what_is_lost_is_named(tmp_path: Path) -> None:
    synthetic = Synthetic(partitions=8, executors=1).virtual(3)
    segment = synthetic.segments()[1]
    del synthetic.objects[segment]
    found = findings(lay_out(tmp_path, synthetic.objects))
    lost = [f for f in found if f["check"] == "lost"]
    assert segment in lost[0]["found"]
    assert lost[-1]["found"] == "3 more changelogs"
    assert {f["verdict"] for f in lost} == {"fail"}


def test_orphans_are_doubtful_only(tmp_path: Path) -> None:
    found = findings(lay_out(tmp_path, Synthetic().virtual(2).failed_attempt().objects))
    assert "2 segments" in with_verdict(found, "warn")["orphans"]["found"]
    assert with_verdict(found, "fail") == {}


def test_a_truncated_segment_is_seen_without_reading_it(tmp_path: Path) -> None:
    synthetic = Synthetic(executors=1).virtual(3)
    segment = synthetic.segments()[1]
    synthetic.objects[segment] = truncated(synthetic.objects[segment])
    failed = with_verdict(findings(lay_out(tmp_path, synthetic.objects)), "fail")
    assert segment in failed["damage"]["found"]


def in_first_block(data: bytes) -> bytes:
    return data[:100] + bytes([data[100] ^ 1]) + data[101:]


@pytest.mark.parametrize("damage", [in_first_block, flipped])
def test_a_bit_that_flipped_is_seen_with_deep(
    damage: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    synthetic = Synthetic(executors=1, partitions=1).virtual(3)
    segment = synthetic.segments()[1]
    synthetic.objects[segment] = damage(synthetic.objects[segment])
    directory = lay_out(tmp_path, synthetic.objects)
    assert with_verdict(findings(directory), "fail") == {}
    assert segment in with_verdict(findings(directory, "--deep"), "fail")["contents"]["found"]


def test_an_id_that_flipped_in_a_commit_is_told_with_the_one_that_belongs_there(
    tmp_path: Path,
) -> None:
    synthetic = Synthetic(partitions=2).virtual(3)
    right = next(name.id for name in synthetic.names(2) if name.partition == 1)
    wrong = right[:-1] + "9"
    version, ids, line = synthetic.objects["commits/2"].split(b"\n")
    flipped_ids = ids.replace(right.encode(), wrong.encode())
    synthetic.objects["commits/2"] = b"\n".join([version, flipped_ids, line])
    directory = lay_out(tmp_path, synthetic.objects)
    failed = with_verdict(findings(directory), "fail")
    assert failed["damage"]["found"] == (
        "object commits/2 is damaged on line 2, Spark's own: expected the id "
        f"{right} of operator 0, partition 1, which the checked index on line 3 has, "
        f"found {wrong} in its place"
    )
    assert failed["damage"]["action"] == (
        f"stop the query and write {right} there; the rest of the object is right"
    )
    assert "lost" not in failed
    exported = tidelog("spark", "export", directory)
    assert exported.exit_code != 0
    assert f"write {right} there" in exported.stderr


def test_the_report_for_people_names_the_next_step(tmp_path: Path) -> None:
    objects = {"offsets/0": offsets(0, provider="org.example.Mine")}
    result = tidelog("spark", "doctor", lay_out(tmp_path, objects))
    assert "stored-provider" in result.stdout and "next: start a new checkpoint" in result.stdout
    assert "NOT safe" in result.stdout
