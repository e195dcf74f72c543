"""`tidelog inspect` names damaged objects, what they cost, and what to do; it writes nothing."""

import json
from pathlib import Path

import pytest

from tests.support.cli import files, lay_out, tidelog
from tests.support.damage import (
    Damage,
    a_descriptor,
    a_table_file,
    damaged,
    flipped,
    last_segment,
    missing,
    truncated,
)
from tests.support.jobs import filled
from tidelog import Value, open_partitions

VICTIMS = {
    "segment": last_segment(filled(), 9),
    "table file": a_table_file(filled(), 9),
    "descriptor": a_descriptor(filled(), 9)[0],
    "manifest": "checkpoints/00000009.json",
}


@pytest.mark.parametrize("deep", [[], ["--deep"]], ids=["quick", "deep"])
def test_a_sound_store_passes(deep: list[str], tmp_path: Path) -> None:
    store = lay_out(tmp_path, filled())
    result = tidelog("inspect", store, *deep)
    assert result.exit_code == 0
    assert "0 problems" in result.stdout
    assert files(store) == filled()


@pytest.mark.parametrize("damage", [truncated, flipped, missing])
@pytest.mark.parametrize("victim", [v for v in VICTIMS if v != "manifest"])
def test_a_damaged_object_is_named_with_what_it_costs(
    victim: str, damage: Damage, tmp_path: Path
) -> None:
    name = VICTIMS[victim]
    objects = damaged(filled(), name, damage)
    store = lay_out(tmp_path, objects)
    result = tidelog("inspect", store, "--deep", "--json")
    assert result.exit_code == 1
    document = json.loads(result.stdout)
    assert {problem["where"] for problem in document["problems"]} == {name}
    for problem in document["problems"]:
        assert problem["slots"] and problem["action"]
        assert problem["expected"] != problem["found"]
    costs = {slot for problem in document["problems"] for slot in problem["slots"]}
    verdicts = {row["slot"]: row["restorable"] for row in document["slots"]}
    assert verdicts == {4: None, **{slot: slot not in costs for slot in (7, 8, 9)}}
    assert files(store) == objects


@pytest.mark.parametrize("damage", [truncated, flipped])
def test_a_damaged_manifest_costs_its_own_checkpoint(damage: Damage, tmp_path: Path) -> None:
    lay_out(tmp_path, damaged(filled(), VICTIMS["manifest"], damage))
    document = json.loads(tidelog("inspect", tmp_path, "--json").stdout)
    assert document["newest_restorable"] == 8
    (problem,) = document["problems"]
    assert problem["slots"] == [9] and "restore slot 8" in problem["action"]


def test_the_text_says_the_same(tmp_path: Path) -> None:
    lay_out(tmp_path, damaged(filled(), VICTIMS["segment"], missing))
    shown = tidelog("inspect", tmp_path).stdout
    assert f"{VICTIMS['segment']} (objects)" in shown
    assert "makes unusable: slot" in shown and "next: " in shown


def test_without_any_usable_checkpoint_only_a_backup_helps(tmp_path: Path) -> None:
    objects = filled()
    for slot in (7, 8, 9):
        objects = damaged(objects, f"checkpoints/0000000{slot}.json", flipped)
    result = tidelog("inspect", lay_out(tmp_path, objects))
    assert result.exit_code == 1
    assert "no other checkpoint can be restored" in result.stdout


def test_the_stores_of_all_partitions_are_checked(tmp_path: Path) -> None:
    url, states = str(tmp_path / "store"), {"n": Value(int)}
    with open_partitions(url, states, partitions=12) as app:
        assert tidelog("inspect", url).stdout.splitlines()[-1].startswith("0 partitions of 12")
        for partition in app.assign([10, 2]):
            app[partition].key("k").n.set(partition)
    found = tidelog("inspect", url, "--deep")
    assert found.exit_code == 0
    assert [line.split()[:2] for line in found.stdout.splitlines()[1:3]] == [
        ["2", "1"],
        ["10", "1"],
    ]
    newest = tmp_path / "store/partitions/00010/checkpoints/00000001.json"
    newest.write_bytes(newest.read_bytes()[:-9])
    hurt = tidelog("inspect", url, "--json")
    document = json.loads(hurt.stdout)
    assert hurt.exit_code == 1
    assert [(s["partition"], s["problems"]) for s in document["stores"]] == [(2, 0), (10, 1)]
    assert (document["partitions"], document["job"]) == (12, "database")


@pytest.mark.parametrize(
    "command",
    [["log"], ["verify"], ["sweep"], ["checkpoints", "list"], ["report"], ["savepoint"], ["ui"]],
    ids=" ".join,
)
def test_other_commands_ask_for_one_partition(command: list[str], tmp_path: Path) -> None:
    with open_partitions(str(tmp_path), {"n": Value(int)}) as app:
        app.assign(range(5))
    result = tidelog(*command, tmp_path)
    assert result.exit_code == 2
    assert "an application with 5 partitions" in result.stderr
    assert "/partitions/00000, " in result.stderr and "00002, ..." in result.stderr
