"""Restore time with the changelog on against off, after the same run.

    python -m benchmarks.restore --job word-count --workload 16x5M
    python -m benchmarks.restore --job window-10 window-5

The job runs over the same records with each setting and is stopped hard right after a checkpoint.
Then the restores alternate, each in a fresh process: from the start of the runner, which takes
over the slot log, until all tasks run. The page cache is warm for all of them.
"""

import asyncio
import contextlib
import dataclasses
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.harness import records
from benchmarks.harness.options import QUICK_DIVISOR, parse, parser, workload
from benchmarks.harness.pairs import Result, alternate, medians, ratios
from tidelog.bench.children import in_child
from tidelog.bench.embedded.jobs import sliding_window, timed, word_count
from tidelog.bench.embedded.meter import Mark, rss_mb
from tidelog.bench.embedded.run import RunSpec, measure, scratch
from tidelog.bench.embedded.stores import open_store
from tidelog.bench.embedded.workload import Workload
from tidelog.bench.store.manners import Manners
from tidelog.effects import Effects
from tidelog.runtime.graph import Job
from tidelog.runtime.runner import JobRunner

SHOW = ("restore_s", "replayed_changes", "table_mb")
WINDOW = Workload(20_000, 16, draws=500_000)
SPAN_MS = 200_000
"""One record per millisecond of event time: the windows of a span keep 200,000 x slides records."""

Read = Callable[[int], list[Any] | None]


def build(job: str, read: Read) -> Job:
    """The job of that name."""
    if job == "word-count":
        return word_count(read)
    slides = int(job.removeprefix("window-"))
    return sliding_window(timed(read), slides=slides, slide_ms=SPAN_MS // slides)


def fill(spec: RunSpec, job: str, store: Path) -> dict[str, Any]:
    """Run the job once and leave its checkpoint."""
    result: dict[str, Any] = measure(spec, lambda stages: build(job, stages.read), store=store)
    return result


def restore(spec: RunSpec, job: str, store: Path) -> dict[str, Any]:
    """Restore in this process; returns how long it took and of what."""
    with scratch() as directory:
        return asyncio.run(_restore(spec, job, store, directory))


async def _restore(spec: RunSpec, job: str, store: Path, directory: Path) -> dict[str, Any]:
    effects = Effects()
    started = asyncio.Event()
    marks: list[Mark] = []

    def on_started() -> None:
        marks.append(Mark.now(0))
        started.set()

    opened = open_store(store, spec.link, effects)
    runner = JobRunner(build(job, lambda _: []), opened, spec.config(directory), effects)
    before = Mark.now(0)
    running = asyncio.ensure_future(runner.run(on_started))
    waiting = asyncio.ensure_future(started.wait())
    await asyncio.wait([running, waiting], return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        running.result()
    progress = runner.progress
    assert progress is not None and runner.restored is not None and runner.deployment is not None
    states = [state for _, state in runner.restored.subtasks()]
    table_bytes = sum(s.materialization.table_bytes for s in states if s.materialization)
    seconds = marks[0].wall - before.wall
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    return {
        "restore_s": round(seconds, 3),
        "cpu_s": round(marks[0].cpu - before.cpu, 3),
        "replayed_changes": progress.changes,
        "changes_per_s": round(progress.changes / seconds),
        "fetched_mb": round(progress.bytes / 1e6, 1),
        "table_mb": round(table_bytes / 1e6, 1),
        "rss_mb": round(rss_mb()),
    }


def experiment(job: str, base: RunSpec, reps: int, *, record: bool) -> None:
    """Fill two or three stores, then alternate restores of them."""
    specs = {
        "on": base,
        "on,replay@0.5s": dataclasses.replace(base, replay_s=0.5),
        "off": dataclasses.replace(base, changelog=False),
    }
    with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as directory:
        stores = {name: Path(directory) / str(at) for at, name in enumerate(specs)}
        fills = {}
        for name, spec in specs.items():
            fills[name] = in_child(fill, dataclasses.replace(spec, link=None), job, stores[name])
            print(f"{job} ran, {name}: {fills[name]['seconds']} s", flush=True)

        def run(name: str) -> Result:
            return in_child(restore, specs[name], job, stores[name])

        in_child(restore, base, job, stores["on"])  # warm-up of page cache and byte code
        runs = alternate(list(specs), reps, run, SHOW)
    result = {
        "job": job,
        "restore_s": medians(runs, "restore_s"),
        "ratios": {
            f"{on} / off": ratios(runs, on, "off", "restore_s") for on in specs if on != "off"
        },
        "changes_per_s": {on: max(r["changes_per_s"] for r in runs[on]) for on in specs},
    }
    print(json.dumps(result, indent=1), flush=True)
    if record:
        records.append("restore", base.describe(), {**result, "fills": fills, "runs": runs})


def main() -> None:
    """Run all jobs asked for; one record each."""
    options = parser(__doc__ or "", seconds=0, reps=3, workloads=["16x5M"])
    add = options.add_argument
    add("--job", nargs="+", default=["word-count", "window-10", "window-5"])
    add("--records", type=int, help="length of the run; default: 5 M words, 300,000 windowed")
    add("--throttled", action="store_true", help="restore behind 30 ms and 50 MB/s")
    parsed = parse(options)
    for job in parsed.job:
        words = job == "word-count"
        for name in parsed.workload if words else [""]:
            count = parsed.records or (5_000_000 if words else 300_000)
            spec = RunSpec(
                workload(parsed, name) if words else WINDOW,
                warm_s=0.0,
                records=count // QUICK_DIVISOR * (5 if not words else 1) if parsed.quick else count,
                link=Manners() if parsed.throttled else None,
                seed=parsed.seed,
            )
            experiment(job, spec, parsed.reps, record=not parsed.quick)


if __name__ == "__main__":
    main()
