"""`tidelog sweep` only lists, until --delete is given."""

import json
from pathlib import Path

import pytest

from tests.support.cli import files, lay_out, tidelog
from tests.support.damage import damaged, flipped
from tests.support.jobs import filled

GARBAGE = {"segments/00000000-zombie-0000000009.seg": b"left by a crash"}
UNDECIDED = {"tables/00000004/ab.sst": b"being uploaded"}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return lay_out(tmp_path, {**filled(), **GARBAGE, **UNDECIDED})


@pytest.mark.parametrize("options", [[], ["--dry-run"]])
def test_a_dry_run_is_the_default_and_deletes_nothing(store: Path, options: list[str]) -> None:
    before = files(store)
    result = tidelog("sweep", store, *options)
    assert result.exit_code == 0
    assert next(iter(GARBAGE)) in result.stdout and "add --delete" in result.stdout
    assert next(iter(UNDECIDED)) in result.stdout and "undecided" in result.stdout
    assert files(store) == before


def test_delete_removes_the_garbage_and_a_second_time_nothing(store: Path) -> None:
    assert tidelog("sweep", store, "--delete").exit_code == 0
    assert files(store) == {**filled(), **UNDECIDED}
    again = json.loads(tidelog("sweep", store, "--delete", "--json").stdout)
    assert (again["deleted"], again["garbage"]) == (True, [])


def test_json_lists_objects_with_their_sizes(store: Path) -> None:
    document = json.loads(tidelog("sweep", store, "--json").stdout)
    assert document == {
        "url": store.as_uri(),
        "generation": 4,
        "deleted": False,
        "garbage": [{"name": name, "size": len(data)} for name, data in GARBAGE.items()],
        "garbage_bytes": 15,
        "undecided": [{"name": name, "size": len(data)} for name, data in UNDECIDED.items()],
        "undecided_bytes": 14,
    }


def test_an_unreadable_slot_stops_even_delete(tmp_path: Path) -> None:
    objects = {**damaged(filled(), "checkpoints/00000007.json", flipped), **GARBAGE}
    store = lay_out(tmp_path, objects)
    result = tidelog("sweep", store, "--delete")
    assert result.exit_code == 1
    assert "checkpoints/00000007.json" in result.stderr and "inspect" in result.stderr
    assert files(store) == objects
