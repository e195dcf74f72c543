"""`tidelog spark check` on checkpoints: whose they are, what is damaged, what to do."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import files, lay_out, tidelog
from tests.support.damage import flipped, flipped_at, truncated
from tests.unit.spark.synthetic import Synthetic, offsets, roll_up_object

Findings = list[dict[str, Any]]

CHECKS = {
    *("checkpoint", "stored-provider", "stored-format", "offsets", "damage", "complete", "lost"),
    *("index", "orphans", "contents"),
}
SOUND = {"checkpoint", "stored-provider", "stored-format", "complete"}
OTHER_PROVIDER = {"offsets/0": offsets(0, provider="org.example.Mine")}


def findings(directory: Path, *options: str) -> Findings:
    """What `tidelog spark check` finds in a checkpoint, not of machine and settings."""
    result = tidelog("spark", "check", directory, *options, "--json")
    found: Findings = json.loads(result.stdout)["findings"]
    assert result.exit_code == int(any(f["verdict"] == "fail" for f in found))
    return [f for f in found if f["check"] in CHECKS]


def of(found: Findings, verdict: str) -> dict[str, dict[str, Any]]:
    return {f["check"]: f for f in found if f["verdict"] == verdict}


def damaged(synthetic: Synthetic, name: str, data: bytes) -> dict[str, bytes]:
    return {**synthetic.objects, name: data}


def of_named_sources() -> dict[str, bytes]:
    """The offsets of each batch have version 2."""
    objects = Synthetic().virtual(2).objects
    for batch in range(2):
        version_1 = offsets(batch).removeprefix(b"v1\n").rpartition(b"\n")[0]
        objects[f"offsets/{batch}"] = b'v2\n%s\norders:{"logOffset":8}\nold:-' % version_1
    return objects


def run_again() -> dict[str, bytes]:
    """Batches ran again since their roll-up was written."""
    synthetic = Synthetic().virtual(10)
    for batch in (8, 9):
        undone = set(synthetic.documents[batch].segments)
        names = list(synthetic.names(batch, attempt="b"))
        synthetic.commit(batch, names, synthetic.write_segments(names))
        for segment in undone:
            del synthetic.objects[f"_tidelog/segments/{segment}"]
    return synthetic.objects


@pytest.mark.parametrize(
    ("objects", "text"),
    [
        (Synthetic().virtual(13).objects, "with the plug-in's log; 13 batches, 0 to 12; 26 live"),
        (Synthetic().stock(3).objects, "of Spark alone"),
        (run_again(), "20 live changelogs"),
        (of_named_sources(), "2 batches, 0 to 1"),
    ],
    ids=["virtual", "stock", "run again", "named sources"],
)
def test_a_whole_checkpoint_is_fine_and_untouched(
    objects: dict[str, bytes], text: str, tmp_path: Path
) -> None:
    directory = lay_out(tmp_path, objects)
    found = findings(directory, "--deep")
    assert {f["verdict"] for f in found} == {"ok"}
    assert {f["check"] for f in found} == SOUND | {"contents"}
    assert text in found[0]["found"]
    assert files(directory) == objects


@pytest.mark.parametrize(
    ("objects", "verdict", "check", "text"),
    [
        (
            {"offsets/0": offsets(0), "commits/0": b'v1\n{"nextBatchWatermarkMs":0}'},
            *("fail", "stored-format", "another directory"),
        ),
        (OTHER_PROVIDER, "fail", "stored-provider", "start a new checkpoint"),
        (
            damaged(Synthetic().virtual(2), "offsets/1", b"v1\nnonsense"),
            *("fail", "offsets", "offsets/1"),
        ),
        (
            Synthetic().virtual(3).without_line(1).objects,
            *("warn", "index", "a restarted query writes"),
        ),
        (Synthetic().virtual(2).failed_attempt().objects, "warn", "orphans", "2 segments"),
    ],
    ids=["format 1", "other provider", "damaged offsets", "only footers", "orphans"],
)
def test_what_is_wrong_or_doubtful_is_named(
    objects: dict[str, bytes], verdict: str, check: str, text: str, tmp_path: Path
) -> None:
    found = findings(lay_out(tmp_path, objects))
    finding = of(found, verdict)[check]
    assert text in f"{finding['found']} {finding['action']}"
    assert set(of(found, "fail")) == ({check} if verdict == "fail" else set())


@pytest.mark.parametrize("name", ["commits/2", roll_up_object(0)])
def test_a_damaged_index_asks_for_nothing(name: str, tmp_path: Path) -> None:
    synthetic = Synthetic().virtual(12)
    synthetic.objects[name] = synthetic.objects[name][:-9]
    directory = lay_out(tmp_path, synthetic.objects)
    failed = of(findings(directory), "fail")
    assert name in failed["damage"]["found"]
    assert "nothing has to be done" in failed["damage"]["action"]


@pytest.mark.parametrize(
    ("damage", "check", "options"),
    [
        (truncated, "damage", []),
        (flipped_at(100), "contents", ["--deep"]),  # in the first block
        (flipped, "contents", ["--deep"]),
    ],
)
def test_a_truncated_segment_is_seen_by_its_length_and_a_flipped_bit_with_deep(
    damage: Any, check: str, options: list[str], tmp_path: Path
) -> None:
    synthetic = Synthetic(executors=1, partitions=1).virtual(3)
    segment = synthetic.segments()[1]
    objects = damaged(synthetic, segment, damage(synthetic.objects[segment]))
    directory = lay_out(tmp_path, objects)
    assert segment in of(findings(directory, *options), "fail")[check]["found"]
    if options:
        assert of(findings(directory), "fail") == {}


def test_an_id_that_flipped_in_a_commit_is_named_with_the_one_that_belongs_there(
    tmp_path: Path,
) -> None:
    synthetic = Synthetic(partitions=2).virtual(3)
    right = next(name.id for name in synthetic.names(2) if name.partition == 1)
    wrong = right[:-1] + "9"
    version, ids, line = synthetic.objects["commits/2"].split(b"\n")
    flipped_ids = ids.replace(right.encode(), wrong.encode())
    objects = damaged(synthetic, "commits/2", b"\n".join([version, flipped_ids, line]))
    directory = lay_out(tmp_path, objects)
    failed = of(findings(directory), "fail")
    assert failed["damage"]["found"] == (
        "object commits/2 is damaged on line 2, Spark's own: expected the id "
        f"{right} of operator 0, partition 1, which the checked index on line 3 has, "
        f"found {wrong} in its place"
    )
    action = f"stop the query and write {right} there; the rest of the object is right"
    assert failed["damage"]["action"] == action
    assert "lost" not in failed
    exported = tidelog("spark", "export", directory)
    assert exported.exit_code != 0
    assert f"write {right} there" in exported.stderr
