"""A job under back-pressure: sources as fast as they may, and a sink that takes its time.

Invariant: the sink holds the whole process for each buffer, so every channel before it is full.
"""

import asyncio
import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tidelog.catalog.inventory import read_slots
from tidelog.checkpoint.manifest import Checkpoint
from tidelog.checkpoint.schedule import Schedule
from tidelog.connectors.program.rate import Rate
from tidelog.effects import Effects, hold_thread
from tidelog.runtime.config import JobConfig, UnalignedConfig, UnalignedMode
from tidelog.runtime.graph import Job
from tidelog.runtime.runner import JobRunner
from tidelog.runtime.sink import Sink, SinkContext, SinkWriter
from tidelog.runtime.status.observe import status_of
from tidelog.storage import object_names
from tidelog_bench.embedded.meter import CLOCK, Mark
from tidelog_bench.embedded.stores import behind, open_local
from tidelog_bench.store.latency import LatencyProfile
from tidelog_bench.store.modelled import Traffic

_KEYS: Final = 50_000
_ALL: Final = 1_000_000
_NEVER_S: Final = 1e6


@dataclass(frozen=True, slots=True)
class Pressure:
    """One run; times in seconds."""

    mode: UnalignedMode
    timeout_s: float
    """Seconds until barriers switch."""
    parallelism: int
    channel_buffers: int
    sink_ms: float
    """How long the sink holds a buffer; 0: there is no back-pressure."""
    checkpoint_s: float
    warm_s: float
    seconds: float
    link: LatencyProfile


@dataclass(frozen=True, slots=True)
class Completed:
    """A checkpoint that completed in the measured time."""

    entry: Checkpoint
    at_s: float
    """Seconds since the measured time began."""
    duration_s: float


@dataclass(frozen=True, slots=True)
class Pressed:
    """What a run gave."""

    checkpoints: Sequence[Completed]
    start: Mark
    end: Mark
    traffic: Traffic


class _Slow(Sink):
    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def open(self, context: SinkContext) -> SinkWriter:
        return _SlowWriter(self._seconds)


class _SlowWriter(SinkWriter):
    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def write(self, records: Sequence[Any]) -> None:
        if self._seconds:
            hold_thread(self._seconds)


def _words(numbers: Iterable[int]) -> list[str]:
    return [f"word-{number * 7919 % _KEYS}" for number in numbers]


def _job(run: Pressure) -> Job:
    """Records go by key to an operator whose sink hangs; without back-pressure they are counted."""
    job = Job("pressure")
    words = job.source(Rate(None, splits=run.parallelism)).map_batches(_words)
    keyed = words.key_by(lambda word: word)
    if run.sink_ms:
        keyed.map(len).sink(_Slow(run.sink_ms / 1e3))
    else:
        keyed.aggregate(lambda _: 1, lambda a, b: a + b).sink(_Slow(0.0))
    return job


def press(run: Pressure, directory: Path) -> Pressed:
    """Run the job for its time in this process."""
    return asyncio.run(_press(run, directory))


async def _press(run: Pressure, directory: Path) -> Pressed:
    effects = Effects()
    kept = open_local(None, effects)
    store = behind(kept, run.link, effects)
    config = JobConfig(
        parallelism=run.parallelism,
        channel_buffers=run.channel_buffers,
        retain=_ALL,
        work_dir=directory / "work",
        checkpoint=Schedule(interval=run.checkpoint_s, timeout=_NEVER_S),
        unaligned=UnalignedConfig(run.mode, run.timeout_s),
    )
    runner = JobRunner(_job(run), store, config, effects)
    running = asyncio.ensure_future(runner.run())
    try:
        await _passed(run.warm_s, running)
        start, before = Mark.now(status_of(runner).records_read), store.model.totals()
        await _passed(run.seconds, running)
        end, after = Mark.now(status_of(runner).records_read), store.model.totals()
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        effects.offload.close()
    assert runner.incarnation is not None
    durations = runner.incarnation.driver.metrics.durations_s
    written = {write.name: write.ended for write in store.writes}
    found = (await read_slots(kept)).checkpoints.values()
    # The last one may have been written and not been counted any more.
    checkpoints = [
        Completed(entry, written[object_names.checkpoint(entry.slot)] - start.wall, duration)
        for entry, duration in zip(found, durations, strict=False)
    ]
    inside = [each for each in checkpoints if 0 <= each.at_s <= end.wall - start.wall]
    return Pressed(inside, start, end, after.since(before))


async def _passed(seconds: float, running: "asyncio.Task[Any]") -> None:
    """Wait; a job that ends meanwhile has failed, and raises."""
    end = CLOCK.monotonic() + seconds
    while CLOCK.monotonic() < end:
        if running.done():
            running.result()
        await CLOCK.sleep(0.05)
