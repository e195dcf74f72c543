"""Stores with savepoints: they verify, and their rows are never taken for changes of the job."""

import asyncio
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import lay_out
from tests.support.jobs import contents, store_of
from tests.support.pipelines import Outside, config, effects, word_count, words
from tests.unit.cost.measured.measuring import measured
from tests.unit.spark.source.reading import read
from tests.unit.verify.stores import Objects, verified
from tidelog.catalog.audit import audit
from tidelog.catalog.inventory import read_slots
from tidelog.checkpoint.manifest import Savepoint
from tidelog.runtime.runner import JobRunner
from tidelog.storage.memory import MemoryStore


@cache
def saved(form: Any, changelog: bool, parallelism: int) -> Objects:
    """A job that took a savepoint after nine seconds, and all of its checkpoints."""

    async def run() -> MemoryStore:
        store, world = MemoryStore(), effects()
        settings = config(changelog=changelog, parallelism=parallelism, retain=20)
        runner = JobRunner(word_count(words(length=60), Outside()), store, settings, world)
        running = asyncio.ensure_future(runner.run())
        await world.clock.sleep(9.2)
        await runner.savepoint("mine", form)
        await running
        return store

    return contents(asyncio.run(run()))


def slot_of_the_savepoint(objects: Objects) -> int:
    checkpoints = asyncio.run(read_slots(store_of(objects))).checkpoints
    return next(slot for slot, each in checkpoints.items() if isinstance(each, Savepoint))


@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("changelog", [True, False])
@pytest.mark.parametrize("form", ["native", "canonical"])
def test_a_savepoint_verifies_and_contradicts_nothing(
    form: str, changelog: bool, parallelism: int
) -> None:
    objects = saved(form, changelog, parallelism)
    report = verified(objects)
    assert report.problems == () and report.passed
    assert {checkpoint.verdict for checkpoint in report.checkpoints} == {"sound"}
    assert asyncio.run(audit(store_of(objects), deep=True)).problems == ()


def test_the_views_name_savepoints(tmp_path: Path) -> None:
    location = lay_out(tmp_path, saved("canonical", True, 2))
    kinds = {row["slot"]: row["kind"] for row in read(location, view="checkpoints")}
    slot = slot_of_the_savepoint(saved("canonical", True, 2))
    assert kinds[slot] == "savepoint" and set(kinds.values()) > {"savepoint", "checkpoint"}
    rows = [r for r in read(location, view="state", slot="all") if r["slot"] in (slot, slot - 1)]
    held = {number: {r["key"] for r in rows if r["slot"] == number} for number in (slot, slot - 1)}
    assert held[slot] >= held[slot - 1] > set()


def test_the_overhead_leaves_canonical_savepoints_out() -> None:
    native, canonical = (measured(saved(form, True, 2)) for form in ("native", "canonical"))
    assert canonical.checkpoints == native.checkpoints - 1
