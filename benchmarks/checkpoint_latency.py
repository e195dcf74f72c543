"""Checkpoint duration at a one-second interval behind a slow link, changelog on against off.

    python -m benchmarks.checkpoint_latency
    python -m benchmarks.checkpoint_latency --rate 50000 --materialize 15

The store takes 30 ms per request and 50 MB/s for all transfers together; materializations run
during the measurement. The record says for each phase of a checkpoint how long it took and what
overlapped the slowest ones.
"""

import dataclasses
import json
from typing import Any

from benchmarks.harness import records
from benchmarks.harness.options import parse, parser, workload
from benchmarks.harness.pairs import Result, alternate
from benchmarks.harness.probe import Probe
from tidelog.bench.children import in_child
from tidelog.bench.embedded.run import RunSpec, measure
from tidelog.bench.embedded.running import Running
from tidelog.bench.store.manners import Manners

SHOW = ("checkpoints", "records_per_s", "snapshots")


def probed(spec: RunSpec) -> dict[str, Any]:
    """Measure with a probe inside."""
    probe = Probe()
    probe.install()
    seen: list[Running] = []

    async def watch(running: Running) -> None:
        seen.append(running)
        await probe.watch_loop()

    result: dict[str, Any] = measure(spec, watch=watch)
    running = seen[0]
    assert running.stages.start is not None
    start = running.stages.start.wall
    result["probe"] = probe.report(start)
    late = [w for w in running.store.writes if w.ended >= start]
    kinds = sorted({w.name.partition("/")[0] for w in late})
    result["writes"] = {k: _writes([w for w in late if w.name.startswith(k)]) for k in kinds}
    return result


def _writes(writes: list[Any]) -> dict[str, Any]:
    return {
        "count": len(writes),
        "mb": round(sum(w.size for w in writes) / 1e6, 1),
        "slowest_ms": round(max(w.ended - w.started for w in writes) * 1e3, 1),
        "largest_mb": round(max(w.size for w in writes) / 1e6, 2),
    }


def main() -> None:
    """Alternate on and off; one record."""
    options = parser(__doc__ or "", seconds=60, reps=1, workloads=["200x2.85M"])
    add = options.add_argument
    add("--rate", type=float, help="records per second; default: as fast as it goes")
    add("--materialize", type=float, default=20.0, help="seconds between materializations")
    add("--materialize-mb-s", type=float, help="bandwidth materializations may take")
    add("--upload-age", type=float, help="seconds a change waits for its upload at most")
    add("--latency-ms", type=float, default=30.0)
    add("--mb-s", type=float, default=50.0)
    add("--variants", nargs="+", default=["on", "off"])
    parsed = parse(options)
    for name in parsed.workload:
        on = RunSpec(
            workload(parsed, name),
            materialize_s=1.0 if parsed.quick else parsed.materialize,
            materialize_mb_per_s=parsed.materialize_mb_s,
            warm_s=parsed.warm,
            seconds=parsed.seconds,
            rate=parsed.rate,
            upload_age_s=parsed.upload_age,
            link=Manners(parsed.latency_ms, parsed.mb_s),
            in_memory_store=True,
            flush_rows=parsed.flush_rows,
            seed=parsed.seed,
        )
        specs = {"on": on, "off": dataclasses.replace(on, changelog=False)}

        def run(variant: str, specs: dict[str, RunSpec] = specs) -> Result:
            result: Result = in_child(probed, specs[variant])
            return result

        runs = alternate(parsed.variants, parsed.reps, run, SHOW)
        for variant in parsed.variants:
            print(variant, json.dumps(runs[variant][-1], indent=1), flush=True)
        if not parsed.quick:
            records.append("checkpoint_latency", on.describe(), {"workload": name, "runs": runs})


if __name__ == "__main__":
    main()
