"""What jobs leave behind is found sound, and what could not be checked is said.

Tools accept stores with savepoints; rows of canonical ones are no changes of the job.
"""

import asyncio
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import lay_out, tidelog
from tests.support.damage import checkpoint_in
from tests.support.jobs import (
    Tide,
    config,
    contents,
    every_kind,
    filled,
    restarted,
    run,
    run_until_break,
    virtual_effects,
    word_count,
)
from tests.unit.verify.stores import Objects, assert_sound, overlapping, report_on, tiny, verified
from tidelog import (
    ForeachSink,
    Job,
    JobConfig,
    JobRunner,
    MaterializeConfig,
    Sliding,
    Tumbling,
    UploadConfig,
)
from tidelog.ids import Slot, SubtaskId
from tidelog.storage.memory import MemoryStore
from tidelog.verify.job.paths import LOG_IS_CUT, NO_MATERIALIZATION

OFTEN = MaterializeConfig(interval=1.0)


@pytest.mark.parametrize(
    "settings",
    [
        config(),
        config(changelog=False),
        config(upload=UploadConfig(inline_bytes=50_000)),
        config(table="memory", materialize=OFTEN),
        config(parallelism=3, retain=10, materialize=OFTEN),
        config(parallelism=1, upload=UploadConfig(segment_bytes=500)),
    ],
    ids=["log", "no log", "inline", "memory", "often", "many segments"],
)
@pytest.mark.parametrize("job", [word_count, every_kind])
def test_every_checkpoint_of_a_job_that_was_restarted_is_sound(
    job: Any, settings: JobConfig
) -> None:
    store = restarted(job, settings)
    before = contents(store)
    assert_sound(report_on(store))
    assert contents(store) == before


def windows(breaks_at: int) -> Job:
    """Windows of both kinds over numbers that are their own event time in seconds."""
    job = Job("windows")
    source = Tide([str(number) for number in range(400)], breaks_at)
    timed = job.source(source).event_time(lambda number: int(number) * 1000)
    by_digit = timed.key_by(lambda number: number[-1])
    sums = by_digit.window(Sliding(30_000, 10_000), name="sums").aggregate(int, lambda a, b: a + b)
    sums.sink(ForeachSink(lambda _: None))
    kept = by_digit.window(Tumbling(60_000), name="kept").records(lambda *window: window)
    kept.sink(ForeachSink(lambda _: None))
    return job


def test_keys_of_open_windows_are_where_they_belong() -> None:
    store = MemoryStore()
    run_until_break(store, windows(breaks_at=200), config(materialize=OFTEN))
    report = report_on(store)
    assert_sound(report)
    kinds = {s.kind for o in checkpoint_in(contents(store), 3).operators for s in o.states}
    assert {"window-aggregate", "window-records", "timers"} <= kinds
    assert {content.operator for content in report.checkpoints[-1].contents} >= {"sums", "kept"}


def test_a_job_that_went_back_to_an_older_checkpoint_has_no_false_contradiction() -> None:
    """What the abandoned generation did is not taken for the history of the one that goes on."""
    store, settings = MemoryStore(), config(retain=20, table="memory", materialize=OFTEN)
    run_until_break(store, word_count(breaks_at=200), settings)
    job = word_count([f"other-{number % 9}" for number in range(400)])
    runner = JobRunner(job, store, settings, virtual_effects(), restore_checkpoint=Slot(2))
    asyncio.run(runner.run())
    report = report_on(store)
    assert report.problems == ()
    assert sum(checkpoint.equal for checkpoint in report.checkpoints) > 0


def test_a_second_way_is_taken_where_there_is_one_and_only_there() -> None:
    report = verified(overlapping())
    ways = {c.checkpoint: (c.equal, c.different, c.unchecked) for c in report.checkpoints}
    assert ways[1] == (0, 0, 4), "the first checkpoint has no materialization"
    assert ways[8] == (4, 0, 0)
    without = {
        (str(SubtaskId(operator.id, state.index)), slot)
        for slot in ways
        for operator, state in checkpoint_in(overlapping(), slot).subtasks()
        if state.materialization is None
    }
    assert {(partition, slot) for partition, _, at in report.unchecked for slot in at} == without
    assert {reason for _, reason, _ in report.unchecked} == {NO_MATERIALIZATION}


def test_without_a_checkpoint_during_the_upload_the_log_to_the_older_table_is_cut() -> None:
    report = verified(tiny())
    reasons = {reason for _, reason, _ in report.unchecked}
    assert reasons == {NO_MATERIALIZATION, LOG_IS_CUT}


def test_checkpoints_that_share_their_bytes_are_restored_once() -> None:
    report = verified(filled())
    assert {c.checkpoint: c.partitions for c in report.checkpoints} == {7: 4, 8: 4, 9: 4}


def test_rows_and_fingerprints_do_not_depend_on_parallelism_or_table() -> None:
    found = []
    for settings in (config(), config(parallelism=3, table="memory"), config(changelog=False)):
        store = MemoryStore()
        run(store, word_count(), settings)
        (content, _) = report_on(store, "latest").checkpoints[-1].contents
        assert content.operator == "count" and content.rows == 40
        found.append(content.fingerprint)
    assert len(set(found)) == 1 and len(str(found[0])) == 32


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
    return json.loads(tidelog("checkpoints", "list", store, "--json").stdout)["checkpoints"]


def test_savepoints_and_every_checkpoint_around_them_are_sound(store: Path) -> None:
    assert_sound(verified(lived()))
    assert tidelog("inspect", store, "--deep").exit_code == 0
    collected = json.loads(tidelog("gc", store, "--delete", "--json").stdout)
    assert tidelog("inspect", store, "--deep").exit_code == 0, collected["garbage"]


def test_the_list_names_savepoints_and_show_says_what_they_are(store: Path) -> None:
    savepoints = [row for row in slots(store) if row["kind"] == "savepoint"]
    found = [(row["name"], row["savepoint_format"]) for row in savepoints]
    assert found == [("rows", "canonical"), ("files", "native"), ("halt", "canonical")]
    shown = tidelog("checkpoints", "show", store, str(savepoints[0]["checkpoint"])).stdout
    assert "savepoint rows, canonical" in shown


def test_a_savepoint_is_dropped_by_name_and_only_on_request(store: Path) -> None:
    said = tidelog("checkpoints", "drop", store, "rows")
    assert "would be removed" in said.stdout and "nothing was deleted" in said.stdout
    assert json.loads(tidelog("checkpoints", "drop", store, "rows", "--json").stdout)["objects"]
    done = tidelog("--log-level", "info", "checkpoints", "drop", store, "rows", "--delete")
    assert done.exit_code == 0 and "no running job was asked to forget" in done.stderr
    gone = tidelog("checkpoints", "drop", store, "rows", "--delete")
    assert gone.exit_code == 2 and "expected one of 4, 6, savepoint files" in gone.stderr
    assert tidelog("inspect", store, "--deep").exit_code == 0
    objects = json.loads(tidelog("gc", store, "--delete", "--json").stdout)["garbage"]
    assert any("-sp-" in info["name"] for info in objects), "its rows went with it"
    assert tidelog("inspect", store, "--deep").exit_code == 0


def test_a_checkpoint_and_the_newest_slot_are_not_dropped(store: Path, tmp_path: Path) -> None:
    plain = next(row["checkpoint"] for row in slots(store) if row["kind"] == "checkpoint")
    assert "which the job drops in time" in tidelog("checkpoints", "drop", store, plain).stderr
    halt = next(row["checkpoint"] for row in slots(store) if row["name"] == "halt")
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
