"""Checkpoints with in-flight data: every reader knows what their segments hold besides the log."""

import asyncio
from functools import cache
from pathlib import Path

import pytest

from tests.support.cli import lay_out
from tests.support.clock import VirtualClock
from tests.support.damage import damaged, missing
from tests.support.jobs import contents, store_of
from tests.support.pipelines import Outside
from tests.support.pressure import keyed_job, numbered, pressed, run_pressed
from tests.unit.cost.measured.measuring import measured
from tests.unit.spark.source.reading import read
from tests.unit.verify.stores import Objects, verdicts, verified
from tidelog.catalog.audit import audit
from tidelog.catalog.inventory import read_slots
from tidelog.changelog.upload_config import UploadConfig
from tidelog.storage.memory import MemoryStore


@cache
def pressured(inline_bytes: int) -> Objects:
    """A job whose barriers overtake; in-flight data lies in segments, or small in manifests."""
    store, clock = MemoryStore(), VirtualClock()
    settings = pressed(upload=UploadConfig(inline_bytes=inline_bytes), table="memory")
    run_pressed(keyed_job(numbered(4, 20), Outside(), clock), store, settings, clock)
    return contents(store)


def in_segments(objects: Objects) -> dict[str, list[int]]:
    """Segments that in-flight data lies in, and the slots that need it."""
    checkpoints = asyncio.run(read_slots(store_of(objects))).checkpoints
    found: dict[str, list[int]] = {}
    for slot, checkpoint in checkpoints.items():
        for _, state in checkpoint.subtasks():
            for part in state.in_flight.log if state.in_flight is not None else ():
                found.setdefault(part.segment, []).append(slot)
    return found


@pytest.mark.parametrize("inline_bytes", [0, 20_000])
def test_checkpoints_with_in_flight_data_are_sound(inline_bytes: int) -> None:
    objects = pressured(inline_bytes)
    assert bool(in_segments(objects)) is (inline_bytes == 0)
    assert verified(objects).passed
    assert asyncio.run(audit(store_of(objects), deep=True)).problems == ()


def test_lost_in_flight_data_costs_the_checkpoints_that_need_it() -> None:
    objects = pressured(0)
    name, slots = next(iter(in_segments(objects).items()))
    report = verified(damaged(objects, name, missing))
    assert {problem.where for problem in report.problems} == {name}
    unusable = {slot for slot, verdict in verdicts(report).items() if verdict == "unusable"}
    assert unusable >= set(slots)
    assert all(problem.partitions for problem in report.problems)


@pytest.mark.parametrize("inline_bytes", [0, 20_000])
def test_the_view_of_blocks_shows_them_with_who_needs_them(
    inline_bytes: int, tmp_path: Path
) -> None:
    rows = read(lay_out(tmp_path, pressured(inline_bytes)), view="blocks")
    in_flight = [row for row in rows if row["kind"] == "in-flight"]
    assert in_flight and any(row["referenced_by"] for row in in_flight)
    where = {row["object"].partition("/")[0] for row in in_flight}
    assert where == ({"segments"} if inline_bytes == 0 else {"checkpoints"})


def test_the_overhead_of_the_log_leaves_them_out() -> None:
    report = measured(pressured(0))
    assert {operator.id for operator in report.operators} >= {"source"}
