"""Barriers that wait, switch and overtake: under full back-pressure, and without any.

    python -m benchmarks.unaligned                        # all three
    python -m benchmarks.unaligned --experiment pressure --sink-ms 20

`pressure`: a sink that takes its time, channels full: checkpoints per minute and their durations.
`objects`: the same at parallelism 50: objects per checkpoint. `cost`: a word count at full speed
without back-pressure: records per second.
"""

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.harness import records
from benchmarks.harness.pairs import Result, alternate, medians, ratios
from tidelog.bench.children import in_child
from tidelog.checkpoint.coordinator import Schedule
from tidelog.checkpoint.inventory import read_slots
from tidelog.checkpoint.manifest import Checkpoint
from tidelog.effects import Effects
from tidelog.runtime.config import JobConfig, UnalignedConfig, UnalignedMode
from tidelog.runtime.graph import Job
from tidelog.runtime.runner import JobRunner
from tidelog.runtime.sink import Sink, SinkContext, SinkWriter
from tidelog.runtime.sources.rate import Rate
from tidelog.storage.local import LocalStore

MODES = ("off", "timeout", "always")


@dataclass(frozen=True, slots=True)
class Spec:
    """One run."""

    mode: UnalignedMode
    parallelism: int
    seconds: float
    sink_ms: float
    """How long the sink holds a buffer; 0: not at all."""
    channel_buffers: int
    timeout_s: float
    interval_s: float


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
            time.sleep(self._seconds)


def _words(numbers: Iterable[int]) -> list[str]:
    return [f"word-{number * 7919 % 50_000}" for number in numbers]


def _job(spec: Spec) -> Job:
    """Records go by key to an operator behind which the sink hangs."""
    job = Job("pressure")
    words = job.source(Rate(None, splits=spec.parallelism)).map_batches(_words)
    if spec.sink_ms:
        words.key_by(lambda word: word).map(len).sink(_Slow(spec.sink_ms / 1e3))
    else:
        counted = words.key_by(lambda word: word).aggregate(lambda _: 1, lambda a, b: a + b)
        counted.sink(_Slow(0.0))
    return job


def measure(spec: Spec) -> Result:
    """Run for a while; figures of its checkpoints and its records."""
    with tempfile.TemporaryDirectory() as scratch:
        return asyncio.run(_measure(spec, Path(scratch)))


async def _measure(spec: Spec, scratch: Path) -> Result:
    store, effects = LocalStore(scratch / "store", Effects()), Effects()
    config = JobConfig(
        parallelism=spec.parallelism,
        channel_buffers=spec.channel_buffers,
        retain=1_000_000,
        work_dir=scratch / "work",
        schedule=Schedule(interval=spec.interval_s, timeout=1e6),
        unaligned=UnalignedConfig(spec.mode, spec.timeout_s),
    )
    runner = JobRunner(_job(spec), store, config, effects)
    running = asyncio.ensure_future(runner.run())
    started = time.perf_counter()
    while time.perf_counter() - started < spec.seconds and not running.done():
        await asyncio.sleep(0.1)
    assert runner.driver is not None and runner.deployment is not None
    durations = sorted(runner.driver.metrics.durations_s)
    elapsed = time.perf_counter() - started
    sources = runner.deployment.tasks[: spec.parallelism]
    read = sum(task.parts.metrics.records_in for task in sources)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    checkpoints = [
        entry
        for entry in (await read_slots(store)).entries.values()
        if isinstance(entry, Checkpoint)
    ]
    return {
        "checkpoints_per_minute": round(len(durations) / elapsed * 60, 1),
        "p50_ms": _ms(durations, 0.5),
        "p99_ms": _ms(durations, 0.99),
        "records_per_s": round(read / elapsed),
        **_in_flight(checkpoints),
    }


def _ms(ascending: Sequence[float], share: float) -> float | None:
    if not ascending:
        return None
    return round(ascending[min(len(ascending) - 1, int(share * len(ascending)))] * 1e3, 1)


def _in_flight(checkpoints: Sequence[Checkpoint]) -> dict[str, Any]:
    """Per checkpoint, the means."""
    count = max(1, len(checkpoints))
    refs = [
        [s.in_flight for _, s in checkpoint.subtasks() if s.in_flight is not None]
        for checkpoint in checkpoints
    ]
    objects = [len({r.segment for ref in held for r in ref.log}) for held in refs]
    return {
        "unaligned": sum(map(bool, refs)),
        "in_flight_subtasks": round(sum(map(len, refs)) / count, 1),
        "in_flight_kb": round(sum(ref.bytes for held in refs for ref in held) / count / 1e3, 1),
        "in_flight_objects": round(sum(objects) / count, 2),
        "in_flight_objects_max": max(objects, default=0),
    }


def main() -> None:
    """Run the experiments asked for; one record each."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = options.add_argument
    every = ["pressure", "objects", "cost"]
    add("--experiment", nargs="+", choices=every, default=every)
    add("--seconds", type=float, default=60.0, help="of a run (60)")
    add("--reps", type=int, default=3, help="repetitions; the modes alternate within each (3)")
    add("--sink-ms", type=float, default=20.0, help="how long the sink holds a buffer (20)")
    add("--timeout", type=float, default=1.0, help="seconds until barriers switch (1)")
    add("--quick", action="store_true", help="5 s, once, no record kept")
    parsed = options.parse_args()
    if parsed.quick:
        parsed.seconds, parsed.reps = 5.0, 1
    pressure = Spec("off", 4, parsed.seconds, parsed.sink_ms, 16, parsed.timeout, 1.0)
    specs = {
        "pressure": pressure,
        "objects": replace(pressure, parallelism=50, channel_buffers=2, sink_ms=1.0),
        "cost": replace(pressure, parallelism=2, sink_ms=0.0, channel_buffers=2),
    }
    show = ("checkpoints_per_minute", "p50_ms", "p99_ms", "records_per_s", "in_flight_objects")
    for name in parsed.experiment:
        spec = specs[name]

        def run(mode: str, spec: Spec = spec) -> Result:
            result: Result = in_child(measure, replace(spec, mode=mode))
            return result

        print(name, flush=True)
        runs = alternate(MODES, parsed.reps, run, show)
        result: dict[str, Any] = {"runs": runs}
        for mode in MODES[1:]:
            result[f"{mode} / off records_per_s"] = ratios(runs, mode, "off", "records_per_s")
        for figure in ("checkpoints_per_minute", "records_per_s"):
            result[figure] = medians(runs, figure)
        print(json.dumps({k: v for k, v in result.items() if k != "runs"}, indent=1), flush=True)
        if not parsed.quick:
            settings = {f: getattr(spec, f) for f in Spec.__slots__ if f != "mode"}
            records.append("unaligned", {"experiment": name, **settings}, result)


if __name__ == "__main__":
    main()
