"""A restart: a process that begins with a state in the store, and how its records pass.

Invariants: the process is a fresh one, and its time counts from before it was started; every row
that a record reads is checked; a look at the job changes nothing of it.
"""

import asyncio
import math
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, Final

from tidelog.checkpoint.config import CheckpointConfig
from tidelog.effects import Effects, ThreadOffload
from tidelog.library.event_loop import EventLoop
from tidelog.runtime.checkpoints.completed import CheckpointMetrics
from tidelog.runtime.config import JobConfig
from tidelog.runtime.runner import JobRunner
from tidelog.runtime.sink import Sink, SinkContext, SinkWriter
from tidelog.runtime.status.distribution import percentile
from tidelog.state.config import Begin, RestoreConfig
from tidelog.storage.local import LocalStore
from tidelog_bench.embedded.meter import CLOCK, anonymous_mb, tree_peak_mb
from tidelog_bench.embedded.restart_state import (
    BUFFER,
    Keys,
    StateSize,
    check_row,
    key_of,
    numbers,
    opened,
    records,
    rewrite,
    value_of,
)
from tidelog_bench.embedded.run import meanwhile
from tidelog_bench.experiment import Trial
from tidelog_bench.store import LatencyProfile, ModelledStore

_LOOK_S: Final = 0.02
_STORE_THREADS: Final = 4
"""A library for a store has threads of its own, which do not need the interpreter, as these do."""
_MARKS: Final = (BUFFER, 8_192, 65_536)
"""The records whose moments are figures."""


@dataclass(frozen=True, slots=True)
class Restart:
    """What the settings of a trial say of it."""

    begin: Begin
    keys: Keys
    seed: int
    checkpoint_s: float
    warm_records: int
    """Records that are handled before those whose speed is measured afterwards, ..."""
    records: int
    """... and how many these are: equally many rows are in memory then, whatever came before."""
    rate: float | None = None
    """Records a second; None: as fast as they are taken."""


@dataclass(slots=True)
class Output(Sink):
    """Counts the records that come out; `moments` has when, and how many there were then."""

    moments: list[tuple[float, int]] = field(default_factory=list)
    count: int = 0

    def open(self, context: SinkContext) -> SinkWriter:
        return _Writer(self)

    def add(self, count: int) -> None:
        self.count += count
        self.moments.append((CLOCK.monotonic(), self.count))

    def seconds_to(self, count: int, started: float) -> float:
        """From a moment until so many records were out."""
        return next(moment for moment, seen in self.moments if seen >= count) - started

    def count_at(self, moment: float) -> int:
        """How many were out at a moment."""
        before = [seen for when, seen in self.moments if when <= moment]
        return before[-1] if before else 0

    def rate(self, first: int, count: int) -> float:
        """Records a second from one on until so many more were out."""
        begun, ended = self.seconds_to(first, 0.0), self.seconds_to(first + count, 0.0)
        return count / (ended - begun)

    def by_second(self, started: float) -> list[int]:
        """The records of each second since a moment."""
        seconds = range(math.ceil(self.moments[-1][0] - started))
        counts = [self.count_at(started + second) for second in seconds]
        return [later - earlier for earlier, later in pairwise(counts)]

    def stop_s(self, begun: float, ended: float) -> float:
        """The longest time between two moments without a record, from the first one on."""
        moments = [when for when, _ in self.moments if begun <= when <= ended]
        gaps = [later - earlier for earlier, later in pairwise(moments)]
        return max(gaps, default=0.0)


@dataclass(slots=True)
class _Writer(SinkWriter):
    output: Output

    def write(self, records: Sequence[Any]) -> None:
        self.output.add(len(records))


@dataclass(slots=True)
class _Run:
    """A job that is observed until its state was whole and so many records have passed since."""

    runner: JobRunner
    output: Output
    restart: Restart
    whole: float = 0.0
    """When the state was whole, ..."""
    checkpoints: int = 0
    """... and how many checkpoints were complete then."""
    anonymous_mb: float = 0.0

    async def watch(self) -> None:
        await self._until(lambda: self.runner.running)
        assert self.runner.incarnation is not None
        progress = self.runner.incarnation.states.progress
        await self._until(lambda: progress.hydration.is_whole)
        self.whole = CLOCK.monotonic()
        self.checkpoints = self._metrics.completed
        last = max(self.restart.warm_records, self.output.count) + self.restart.records
        await self._until(lambda: self.output.count >= last)

    async def _until(self, reached: Callable[[], bool]) -> None:
        while not reached():
            self.anonymous_mb = max(self.anonymous_mb, anonymous_mb())
            await CLOCK.sleep(_LOOK_S)

    @property
    def _metrics(self) -> CheckpointMetrics:
        assert self.runner.incarnation is not None
        return self.runner.incarnation.driver.metrics

    def figures(self, started: float) -> dict[str, float]:
        output, whole, end = self.output, self.whole, CLOCK.monotonic()
        restart, durations = self.restart, list(self._metrics.durations_s)
        begun = output.moments[0][0]
        figures = {
            "first_output_s": begun - started,
            "whole_s": whole - started,
            "stop_until_whole_ms": output.stop_s(begun, whole) * 1e3,
            "stop_ms": output.stop_s(begun, end) * 1e3,
            "anonymous_mb": self.anonymous_mb,
            "peak_mb": tree_peak_mb(),
        }
        if restart.rate is None:
            figures |= {
                **{f"to_{count}_s": output.seconds_to(count, started) for count in _MARKS},
                "until_whole_per_s": output.count_at(whole) / (whole - started),
                "afterwards_per_s": output.rate(restart.warm_records, restart.records),
            }
        parts = {
            "hydrating": durations[: self.checkpoints],
            "steady": durations[self.checkpoints :],
        }
        for name, seconds in parts.items():
            if seconds:
                figures[f"checkpoint_{name}_p99_ms"] = percentile(seconds, 0.99) * 1e3
        return figures


@dataclass(frozen=True, slots=True)
class Measured:
    """What a restarted process says."""

    figures: dict[str, float]
    by_second: list[int]
    """Records that were handled in each second."""


def restart(trial: Trial, store: Path, work: Path, started: float) -> Measured:
    """Begin with the state of a store, as a process that was started at that moment."""
    if trial.read(StateSize).use == "program":
        return _restart_program(trial, store, work, started)
    return asyncio.run(_restart(trial, store, work, started))


def _link_to(store: Path, trial: Trial, effects: Effects) -> ModelledStore:
    """The store over the link of the trial, on a loop and with threads of its own."""
    profile, threads = trial.read(LatencyProfile), ThreadOffload(_STORE_THREADS)
    local = LocalStore(store, replace(effects, offload=threads))
    return ModelledStore(local, CLOCK, profile, own_loop=True)


def _config(restart: Restart, work: Path) -> JobConfig:
    return JobConfig(
        work_dir=work,
        checkpoint=CheckpointConfig(interval=restart.checkpoint_s, idle_interval=0.0),
        restore=RestoreConfig(begin=restart.begin, whole_bytes=0),
    )


def _restart_program(trial: Trial, store: Path, work: Path, started: float) -> Measured:
    """Steps of a program, one after the other: each looks up a row and writes it again."""
    size, restart = trial.read(StateSize), trial.read(Restart, begin=trial.variant)
    event_loop, output = EventLoop(), Output()
    link = _link_to(store, trial, event_loop.effects)
    with opened(link, _config(restart, work), event_loop) as database:
        for number in islice(
            numbers(restart.keys, size.rows, f"read {restart.seed}"), restart.records
        ):
            row = database.key(key_of(number)).rows
            check_row(number, row.get())
            row.set(value_of(number))
            database.advance("numbers", number)
            output.add(1)
        figures = {
            "first_output_s": output.seconds_to(1, started),
            **{f"to_{count}_s": output.seconds_to(count, started) for count in _MARKS[:2]},
            "peak_mb": tree_peak_mb(),
            "requests": link.totals().all_requests,
            "downloaded_mb": link.downloaded_bytes / 1e6,
        }
    return Measured(figures, output.by_second(started))


async def _restart(trial: Trial, store: Path, work: Path, started: float) -> Measured:
    size, restart = trial.read(StateSize), trial.read(Restart, begin=trial.variant)
    effects, output = Effects(), Output()
    link = _link_to(store, trial, effects)
    drawn = numbers(restart.keys, size.rows, f"read {restart.seed}")
    source = records(drawn, rate=restart.rate)
    job = rewrite(source, output)
    run = _Run(JobRunner(job, link, _config(restart, work), effects), output, restart)
    with closing(effects.offload):
        async with meanwhile(run.runner.run()):
            await run.watch()
            figures = run.figures(started) | {
                "requests": link.totals().all_requests,
                "downloaded_mb": link.downloaded_bytes / 1e6,
            }
    return Measured(figures, output.by_second(started))
