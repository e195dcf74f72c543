"""Memory while the store stalls for 30 seconds: bounded by configuration, not by the stall.

    python -m benchmarks.memory --limit-mb 32

The store hangs on every request for a while; the job goes on until the log bytes held reach
their limit, then the writers wait. Asserts nothing: it reports what was held against the limit.
"""

import asyncio
import json
import time
from typing import Any

from benchmarks.harness import records
from benchmarks.harness.options import parse, parser, workload
from tidelog.bench.children import in_child
from tidelog.bench.embedded.meter import rss_mb
from tidelog.bench.embedded.run import RunSpec, measure
from tidelog.bench.embedded.running import Running

LOOK_S = 0.1
CALM_S = 5.0


def stalled(spec: RunSpec, stall_s: float) -> dict[str, Any]:
    """Measure with a stall that begins five seconds after the warm-up."""
    samples: list[dict[str, float]] = []

    async def watch(running: Running) -> None:
        began: float | None = None
        while True:
            await asyncio.sleep(LOOK_S)
            start = running.stages.start
            if start is None or running.runner.uploader is None:
                continue
            at = time.perf_counter() - start.wall
            if began is None and at >= CALM_S:
                began = at
                running.store.stall()
            if began is not None and at >= began + stall_s:
                running.store.release()
            samples.append(_sample(at, running))

    result: dict[str, Any] = measure(spec, watch=watch)
    during = [s for s in samples if CALM_S <= s["at_s"] < CALM_S + stall_s]
    before = [s for s in samples if s["at_s"] < CALM_S]
    assert during and before and spec.limit_bytes
    held = max(s["held_mb"] for s in samples)
    result["limit_mb"] = spec.limit_bytes / 1e6
    result["held_mb_max"] = held
    result["held_over_limit"] = round(held * 1e6 / spec.limit_bytes, 3)
    result["rss_mb_before"] = max(s["rss_mb"] for s in before)
    result["rss_mb_during"] = max(s["rss_mb"] for s in during)
    result["rss_mb_max"] = max(s["rss_mb"] for s in samples)
    result["over_time"] = samples[::10]
    return result


def _sample(at: float, running: Running) -> dict[str, float]:
    runner = running.runner
    assert runner.uploader is not None and runner.deployment is not None
    seen = sum(task.parts.metrics.records_in for task in runner.deployment.tasks)
    return {
        "at_s": round(at, 1),
        "rss_mb": round(rss_mb(), 1),
        "held_mb": round(runner.uploader.metrics.queued_bytes / 1e6, 2),
        "records": seen,
    }


def main() -> None:
    """One run per workload; one record each."""
    options = parser(__doc__ or "", seconds=0, reps=1, workloads=["200x0.95M"])
    options.add_argument("--stall", type=float, default=30.0, help="seconds")
    options.add_argument("--limit-mb", type=float, default=32.0, help="log bytes held at most")
    parsed = parse(options)
    stall = 5.0 if parsed.quick else parsed.stall
    for name in parsed.workload:
        spec = RunSpec(
            workload(parsed, name),
            warm_s=parsed.warm,
            seconds=CALM_S + stall + 10.0,
            limit_bytes=int(parsed.limit_mb * 1e6),
            seed=parsed.seed,
        )
        result = in_child(stalled, spec, stall)
        print(json.dumps(result, indent=1), flush=True)
        if not parsed.quick:
            records.append("memory", spec.describe(), {"workload": name, **result})


if __name__ == "__main__":
    main()
