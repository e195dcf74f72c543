"""Tools that look into stores accept savepoints; rows of canonical ones are no changes to them."""

import asyncio
import json
from functools import cache
from pathlib import Path

import pytest

from tests.support.cli import lay_out, tidelog
from tests.support.jobs import config, contents, every_kind, store_of, virtual_effects
from tests.unit.verify.stores import Objects, report_on, verdicts
from tidelog.cost.measured.history import read_history
from tidelog.materialize.config import MaterializeConfig
from tidelog.runtime.runner import JobRunner
from tidelog.storage.memory import MemoryStore


async def _live() -> MemoryStore:
    """A job that took savepoints of both kinds, was stopped with a canonical one, and went on."""
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


@cache
def lived() -> Objects:
    return contents(asyncio.run(_live()))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return lay_out(tmp_path / "store", lived())


def test_verify_finds_every_savepoint_and_every_checkpoint_around_them_sound() -> None:
    report = report_on(asyncio.run(_live()))
    assert report.problems == () and report.passed
    assert set(verdicts(report).values()) == {"sound"}
    assert len(report.checkpoints) > 6


def test_inspect_and_sweep_find_nothing_wrong(store: Path) -> None:
    assert tidelog("inspect", store, "--deep").exit_code == 0
    swept = json.loads(tidelog("sweep", store, "--delete", "--json").stdout)
    assert tidelog("inspect", store, "--deep").exit_code == 0, swept["garbage"]


def test_the_list_names_savepoints_and_show_says_what_they_are(store: Path) -> None:
    listed = json.loads(tidelog("checkpoints", "list", store, "--json").stdout)["slots"]
    savepoints = [row for row in listed if row["kind"] == "savepoint"]
    found = [(row["name"], row["savepoint_format"]) for row in savepoints]
    assert found == [("rows", "canonical"), ("files", "native"), ("halt", "canonical")]
    shown = tidelog("checkpoints", "show", store, str(savepoints[0]["slot"])).stdout
    assert "savepoint rows, canonical" in shown


def test_a_savepoint_is_dropped_by_name_and_only_when_told_to(store: Path) -> None:
    said = tidelog("checkpoints", "drop", store, "rows")
    assert "would be removed" in said.stdout and "nothing was deleted" in said.stdout
    assert json.loads(tidelog("checkpoints", "drop", store, "rows", "--json").stdout)["objects"]
    done = tidelog("--log-level", "info", "checkpoints", "drop", store, "rows", "--delete")
    assert done.exit_code == 0 and "no running job was told of the deletion" in done.stderr
    gone = tidelog("checkpoints", "drop", store, "rows", "--delete")
    assert gone.exit_code == 1
    assert "none of that name or slot" in gone.stderr
    assert tidelog("inspect", store, "--deep").exit_code == 0
    objects = json.loads(tidelog("sweep", store, "--delete", "--json").stdout)["garbage"]
    assert any("-sp-" in info["name"] for info in objects), "its rows went with it"
    assert tidelog("inspect", store, "--deep").exit_code == 0


def test_a_checkpoint_and_the_newest_slot_are_not_dropped(tmp_path: Path) -> None:
    listed = [name for name in lived() if name.startswith("checkpoints/")]
    store = lay_out(tmp_path / "all", lived())
    slots = json.loads(tidelog("checkpoints", "list", store, "--json").stdout)["slots"]
    plain = next(row["slot"] for row in slots if row["kind"] == "checkpoint")
    assert "which the job drops in time" in tidelog("checkpoints", "drop", store, plain).stderr
    halt = next(row["slot"] for row in slots if row["name"] == "halt")
    until = {name for name in listed if int(name[12:20]) <= halt}
    cut = {name: data for name, data in lived().items() if name in until or name not in listed}
    store = lay_out(tmp_path / "cut", cut)
    refused = tidelog("checkpoints", "drop", store, "halt", "--delete")
    assert refused.exit_code == 1
    assert "output that is committed would come again" in refused.stderr
    assert (store / f"checkpoints/{halt:08}.json").exists()


def test_readers_of_changes_leave_canonical_savepoints_out() -> None:
    store = store_of(lived())
    history, checkpoints = asyncio.run(read_history(store))
    assert [getattr(each, "name", None) for each in checkpoints].count("files") == 1
    assert not {"rows", "halt"} & {getattr(each, "name", None) for each in checkpoints}
    assert len(history.snapshots) == len(checkpoints)
