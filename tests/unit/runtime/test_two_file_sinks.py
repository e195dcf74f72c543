"""Two file sinks of one job: hidden and growing files of the same names are never mixed up."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from tests.support.early_starts import until
from tests.support.output_files import output_lines
from tidelog import (
    CheckpointConfig,
    Emitter,
    FileSink,
    Job,
    JobConfig,
    JobRunner,
    PushSource,
    open_store,
)

STEPS = ([("short", "a" * 10), ("long", "b" * 15)], [("short", "c" * 10)])


class Steps(PushSource):
    """The records, step by step: those of the next when those before are in view."""

    def __init__(self, base: Path) -> None:
        super().__init__()
        self.base = base
        self.all_are_in_view = asyncio.Event()

    def discover(self) -> list[str]:
        return ["0"]

    async def push(self, split: str, position: int | None, emitter: Emitter) -> None:
        for number, records in enumerate(STEPS[position or 0 :], (position or 0) + 1):
            await emitter.emit(records, number)
            await until(partial(self._shows, texts(records)))
        self.all_are_in_view.set()
        if position is None:
            await asyncio.Event().wait()

    def _shows(self, expected: set[str]) -> bool:
        return expected <= set(in_view(self.base))


def texts(records: Sequence[tuple[str, str]]) -> set[str]:
    return {text for _, text in records}


def in_view(base: Path) -> list[str]:
    return [line for name in ("short", "long") for line in output_lines(base / name)]


def job(base: Path) -> tuple[Job, Steps]:
    job, source = Job("two"), Steps(base)
    records = job.source(source)
    for name in ("short", "long"):
        chosen = records.filter(lambda record, name=name: record[0] == name)
        chosen.map(lambda record: record[1]).sink(FileSink(base / name, "text"), name=name)
    return job, source


def runner(job: Job, base: Path) -> JobRunner:
    config = JobConfig(checkpoint=CheckpointConfig(interval=0.01))
    return JobRunner(job, open_store(str(base / "store")), config)


@asynccontextmanager
async def running(job: Job, base: Path) -> AsyncIterator[None]:
    task = asyncio.create_task(runner(job, base).run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_after_a_crash_each_sink_goes_on_with_its_own_files_alone(tmp_path: Path) -> None:
    base, crashed = tmp_path / "base", tmp_path / "crashed"
    first, source = job(base)
    async with running(first, base):
        await source.all_are_in_view.wait()
        # What kill -9 leaves: the long sink's file ends within the short one's second part.
        shutil.copytree(base, crashed)
    await runner(job(crashed)[0], crashed).run()
    assert sorted(in_view(crashed)) == sorted(text for step in STEPS for _, text in step)
