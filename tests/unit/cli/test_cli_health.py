"""`tidelog inspect`, `store check` and `gc`: what is damaged, unsafe or garbage, and what to do."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import files, lay_out, tidelog
from tests.support.clock import VirtualClock
from tests.support.damage import Damage, damaged, flipped, truncated
from tests.support.faults import Fault, FaultKind, FaultyStore
from tests.support.jobs import filled, store_of
from tests.unit.storage.test_every_store_conforms import Overwriting
from tidelog import JobConfig, UploadConfig, ValueState, open_partitions
from tidelog.storage import open as opening
from tidelog.storage.errors import access_denied, store_unreachable

MANIFEST = "checkpoints/00000009.json"
GARBAGE = {"segments/00000000-zombie-0000000009.seg": b"left by a crash"}
UNDECIDED = {"tables/00000004/ab.sst": b"being uploaded"}
FOREIGN = {"tables/readme.txt": b"not ours", "notes": b"either", "probe/a/b": b"a probe's"}


@pytest.mark.parametrize("damage", [truncated, flipped])
def test_a_damaged_manifest_costs_its_own_checkpoint(damage: Damage, tmp_path: Path) -> None:
    lay_out(tmp_path, damaged(filled(), MANIFEST, damage))
    document = json.loads(tidelog("inspect", tmp_path, "--json").stdout)
    assert document["newest_restorable"] == 8
    (problem,) = document["problems"]
    assert problem["checkpoints"] == [9] and "restore checkpoint 8" in problem["action"]


def test_without_any_usable_checkpoint_only_a_backup_helps(tmp_path: Path) -> None:
    objects = filled()
    for slot in (7, 8, 9):
        objects = damaged(objects, f"checkpoints/0000000{slot}.json", flipped)
    result = tidelog("inspect", lay_out(tmp_path, objects))
    assert result.exit_code == 1
    assert "no other checkpoint can be restored" in result.stdout


def test_the_stores_of_all_partitions_are_checked(tmp_path: Path) -> None:
    url, states = str(tmp_path / "store"), {"n": ValueState(int)}
    with open_partitions(url, states, partitions=12) as app:
        assert tidelog("inspect", url).stdout.splitlines()[-1].startswith("0 partitions of 12")
        for partition in app.assign([10, 2]):
            app[partition].key("k").n.set(partition)
    found = tidelog("inspect", url, "--deep")
    assert found.exit_code == 0
    lines = [line.split()[:2] for line in found.stdout.splitlines()[1:3]]
    assert lines == [["2", "1"], ["10", "1"]]
    newest = tmp_path / "store/partitions/00010/checkpoints/00000001.json"
    newest.write_bytes(newest.read_bytes()[:-9])
    hurt = tidelog("inspect", url, "--json")
    document = json.loads(hurt.stdout)
    assert hurt.exit_code == 1
    assert [(s["partition"], s["problems"]) for s in document["stores"]] == [(2, 0), (10, 1)]
    assert (document["partitions"], document["job"]) == (12, "database")


def test_a_partition_that_has_lost_its_slots_hides_no_other(tmp_path: Path) -> None:
    url, config = str(tmp_path / "store"), JobConfig(upload=UploadConfig(inline_bytes=0))
    with open_partitions(url, {"n": ValueState(int)}, config=config) as app:
        for partition in app.assign([2, 10]):
            app[partition].key("k").n.set(partition)
    shutil.rmtree(tmp_path / "store/partitions/00002/checkpoints")
    found = tidelog("inspect", url, "--json")
    stores = json.loads(found.stdout)["stores"]
    assert found.exit_code == 1
    assert [(s["partition"], s["newest_restorable"]) for s in stores] == [(2, None), (10, 1)]
    assert [s["problems"] for s in stores] == [1, 0]


def test_a_store_that_overwrites_is_not_safe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "open_store", lambda *_, **__: Overwriting())
    result = tidelog("store", "check", "memory://unsafe")
    assert result.exit_code == 1
    assert "refuse overwrite  FAILED" in result.stdout and "NOT safe" in result.stdout


def test_store_check_says_the_bandwidth_that_estimates_ask_for(tmp_path: Path) -> None:
    result = tidelog("store", "check", tmp_path)
    assert result.exit_code == 0, result.output
    (said,) = (line for line in result.stdout.splitlines() if line.startswith("for estimates: "))
    options = said.removeprefix("for estimates: ").split()
    job = ("--writes-per-second", "10", "--keys", "10")
    estimated = json.loads(tidelog("estimate", *job, *options, "--json").stdout)
    assert estimated["settings"]["bandwidth_bytes_per_s"] >= 1_000_000


@pytest.mark.parametrize("refusal", [access_denied, store_unreachable])
@pytest.mark.parametrize("command", ["inspect", "verify"])
def test_a_store_that_does_not_answer_gets_no_verdict_and_damage_gets_a_bad_one(
    command: str, refusal: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    faults = [
        Fault(FaultKind.FAIL, operation, error=lambda _, name: refusal(name, "403"))
        for operation in ("list", "get")
    ]
    silent = FaultyStore(store_of(filled()), faults, VirtualClock())
    with monkeypatch.context() as refusing:
        refusing.setattr(opening, "open_store", lambda *_, **__: silent)
        assert tidelog(command, "memory://silent").exit_code == 4
    lay_out(tmp_path, damaged(filled(), MANIFEST, flipped))
    assert tidelog(command, tmp_path).exit_code == 1


def listed(objects: dict[str, bytes]) -> list[dict[str, Any]]:
    return [{"name": name, "size": len(data)} for name, data in objects.items()]


def test_gc_only_lists_until_it_is_to_delete(tmp_path: Path) -> None:
    objects = {**filled(), **GARBAGE, **UNDECIDED, **FOREIGN}
    store = lay_out(tmp_path, objects)
    for options in ([], ["--dry-run"]):
        shown = tidelog("gc", store, *options)
        assert shown.exit_code == 0 and "add --delete" in shown.stdout
        for name in (*GARBAGE, *UNDECIDED, "undecided"):
            assert name in shown.stdout
    assert json.loads(tidelog("gc", store, "--json").stdout) == {
        "url": store.as_uri(),
        "generation": 4,
        "deleted": False,
        "garbage": listed(GARBAGE),
        "garbage_bytes": 15,
        "undecided": listed(UNDECIDED),
        "undecided_bytes": 14,
    }
    assert files(store) == objects
    assert tidelog("gc", store, "--delete").exit_code == 0
    assert files(store) == {**filled(), **UNDECIDED, **FOREIGN}
    again = json.loads(tidelog("gc", store, "--delete", "--json").stdout)
    assert (again["deleted"], again["garbage"]) == (True, [])


def test_an_unreadable_slot_stops_even_delete(tmp_path: Path) -> None:
    objects = {**damaged(filled(), "checkpoints/00000007.json", flipped), **GARBAGE}
    store = lay_out(tmp_path, objects)
    result = tidelog("gc", store, "--delete")
    assert result.exit_code == 1
    assert "checkpoints/00000007.json" in result.stderr and "inspect" in result.stderr
    assert files(store) == objects


def with_another_digit(data: bytes) -> bytes:
    """Still a JSON document, which is not the one of its checksum."""
    return data.replace(b'"format":1', b'"format":0')


def test_an_unreadable_slot_is_named_where_it_is_to_be_dropped(tmp_path: Path) -> None:
    objects = damaged(filled(), "checkpoints/00000007.json", with_another_digit)
    store = lay_out(tmp_path, objects)
    for name in ("7", "halt"):
        result = tidelog("checkpoints", "drop", store, name, "--delete")
        assert result.exit_code == 1
        assert "CRC32C" in result.stderr and "delete that object by hand" in result.stderr
        assert "checkpoints/00000007.json" in result.stderr
        assert files(store) == objects
