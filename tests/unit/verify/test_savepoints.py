"""Tools accept stores with savepoints; rows of canonical ones are no changes of the job."""

import asyncio
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import lay_out, tidelog
from tests.support.jobs import config, contents, every_kind, virtual_effects
from tests.unit.verify.stores import Objects, assert_sound, verified
from tidelog import JobRunner, MaterializeConfig
from tidelog.storage.memory import MemoryStore


@cache
def lived() -> Objects:
    """A job that took savepoints of both kinds, was stopped with a canonical one, and went on."""

    async def run() -> MemoryStore:
        store = MemoryStore()
        settings = config(retain=20, materialize=MaterializeConfig(interval=1.0))
        world = virtual_effects()
        runner = JobRunner(every_kind(), store, settings, world)
        running = asyncio.ensure_future(runner.run())
        for name, format in (("rows", "canonical"), ("files", "native")):
            await world.clock.sleep(1.7)
            await runner.savepoint(name, format)
        await world.clock.sleep(1.7)
        await runner.stop("halt", "canonical")
        await running
        await JobRunner(every_kind(), store, settings, virtual_effects(3)).run()
        return store

    return contents(asyncio.run(run()))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return lay_out(tmp_path / "store", lived())


def slots(store: Path) -> list[dict[str, Any]]:
    """What `checkpoints list` says."""
    return json.loads(tidelog("checkpoints", "list", store, "--json").stdout)["slots"]


def test_savepoints_and_every_checkpoint_around_them_are_sound(store: Path) -> None:
    assert_sound(verified(lived()))
    assert tidelog("inspect", store, "--deep").exit_code == 0
    swept = json.loads(tidelog("sweep", store, "--delete", "--json").stdout)
    assert tidelog("inspect", store, "--deep").exit_code == 0, swept["garbage"]


def test_the_list_names_savepoints_and_show_says_what_they_are(store: Path) -> None:
    savepoints = [row for row in slots(store) if row["kind"] == "savepoint"]
    found = [(row["name"], row["savepoint_format"]) for row in savepoints]
    assert found == [("rows", "canonical"), ("files", "native"), ("halt", "canonical")]
    shown = tidelog("checkpoints", "show", store, str(savepoints[0]["slot"])).stdout
    assert "savepoint rows, canonical" in shown


def test_a_savepoint_is_dropped_by_name_and_only_on_request(store: Path) -> None:
    said = tidelog("checkpoints", "drop", store, "rows")
    assert "would be removed" in said.stdout and "nothing was deleted" in said.stdout
    assert json.loads(tidelog("checkpoints", "drop", store, "rows", "--json").stdout)["objects"]
    done = tidelog("--log-level", "info", "checkpoints", "drop", store, "rows", "--delete")
    assert done.exit_code == 0 and "no running job was told of the deletion" in done.stderr
    gone = tidelog("checkpoints", "drop", store, "rows", "--delete")
    assert gone.exit_code == 1 and "none of that name or slot" in gone.stderr
    assert tidelog("inspect", store, "--deep").exit_code == 0
    objects = json.loads(tidelog("sweep", store, "--delete", "--json").stdout)["garbage"]
    assert any("-sp-" in info["name"] for info in objects), "its rows went with it"
    assert tidelog("inspect", store, "--deep").exit_code == 0


def test_a_checkpoint_and_the_newest_slot_are_not_dropped(store: Path, tmp_path: Path) -> None:
    plain = next(row["slot"] for row in slots(store) if row["kind"] == "checkpoint")
    assert "which the job drops in time" in tidelog("checkpoints", "drop", store, plain).stderr
    halt = next(row["slot"] for row in slots(store) if row["name"] == "halt")
    cut = {
        name: data
        for name, data in lived().items()
        if not name.startswith("checkpoints/") or int(name[12:20]) <= halt
    }
    store = lay_out(tmp_path / "cut", cut)
    refused = tidelog("checkpoints", "drop", store, "halt", "--delete")
    assert refused.exit_code == 1
    assert "output that is committed would come again" in refused.stderr
    assert (store / f"checkpoints/{halt:08}.json").exists()
