"""A job that read its files to their ends follows them from its next start on."""

import asyncio
from pathlib import Path
from random import Random

import pytest

from tests.support.clock import VirtualClock
from tests.support.pipelines import Outside
from tests.support.pressure import checkpoints, outside_as_of, pressed, run_pressed, slowly
from tidelog import Effects, Job, JobConfig, JobRunner, TextFiles
from tidelog.effects import InlineOffload
from tidelog.ids import Slot
from tidelog.storage.memory import MemoryStore


def copying(directory: Path, sink: Outside, clock: VirtualClock, *, follow: bool) -> Job:
    job = Job("copy")
    lines = job.source(TextFiles(directory, follow=follow, chunk_bytes=8))
    slowly(lines.rebalance(), clock, 0.2).sink(sink)
    return job


def write(path: Path, *lines: str) -> None:
    with path.open("a") as file:
        file.writelines(line + "\n" for line in lines)


def follow_for_a_while(
    job: Job, store: MemoryStore, config: JobConfig, clock: VirtualClock, slot: Slot | None = None
) -> None:
    async def main() -> None:
        effects = Effects(clock, Random(1), InlineOffload())
        runner = JobRunner(job, store, config, effects, restore_slot=slot)
        started = asyncio.Event()
        running = asyncio.ensure_future(runner.run(started.set))
        await started.wait()
        await clock.sleep(60)
        await runner.stop()
        await running

    asyncio.run(main())


def test_lines_behind_the_end_that_an_earlier_run_saw_are_read(tmp_path: Path) -> None:
    write(tmp_path / "short", "s0")
    write(tmp_path / "long", *(f"l{n}" for n in range(60)))
    store, sink, clock = MemoryStore("memory://followed"), Outside(), VirtualClock()
    config = pressed(parallelism=1, channel_buffers=1)
    run_pressed(copying(tmp_path, sink, clock, follow=False), store, config, clock)
    # As if it had died in the middle: the short file was read to its end, the long one was not.
    taken = [c for c in checkpoints(store) if "s0" in outside_as_of(sink, c).records]
    middle = taken[0]
    assert len(outside_as_of(sink, middle).records) < 40
    write(tmp_path / "short", "s1", "s2")
    write(tmp_path / "new", "n0")
    again, clock = outside_as_of(sink, middle), VirtualClock()
    job = copying(tmp_path, again, clock, follow=True)
    follow_for_a_while(job, store, config, clock, middle.slot)
    expected = ["n0", "s0", "s1", "s2", *(f"l{n}" for n in range(60))]
    assert sorted(again.records) == sorted(expected)


def test_a_source_that_had_finished_says_that_it_follows_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("done", "going-on"):
        (tmp_path / name).mkdir()
        write(tmp_path / name / "file", name)

    def job(sink: Outside, *, follow: bool) -> Job:
        job = Job("two")
        for name, follows in (("done", follow), ("going-on", True)):
            lines = job.source(TextFiles(tmp_path / name, follow=follows), name=name)
            lines.sink(sink, name=f"{name}-sink")
        return job

    store, sink, config = MemoryStore("memory://finished"), Outside(), pressed(parallelism=1)
    follow_for_a_while(job(sink, follow=False), store, config, VirtualClock())
    write(tmp_path / "done" / "file", "too late")
    assert "is to follow" not in caplog.text
    follow_for_a_while(job(sink, follow=True), store, config, VirtualClock())
    assert sorted(sink.records) == ["done", "going-on"]
    assert "source 'done' is to follow its input" in caplog.text
    assert "source 'going-on' is to follow" not in caplog.text
