"""Word count with the changelog on (checkpoint every second) against off, every 1 s and 20 s.

python -m benchmarks.throughput --workload 16x5M
python -m benchmarks.throughput --quick
"""

import dataclasses
import json

from benchmarks.harness import records
from benchmarks.harness.options import parse, parser, workload
from benchmarks.harness.pairs import Result, alternate, medians, ratios
from tidelog.bench.children import in_child
from tidelog.bench.embedded.run import RunSpec, measure

SHOW = ("records_per_s", "cpu_us_per_record", "snapshots")
WORKLOADS = ["16x5M", "200x0.95M", "200x2.85M", "zipf50k"]


def variants(base: RunSpec) -> dict[str, RunSpec]:
    """On with rare and with frequent materializations, off with rare and frequent checkpoints."""
    return {
        "on": base,
        "off@20s": dataclasses.replace(base, changelog=False, checkpoint_s=20.0),
        "on,materialize@20s": dataclasses.replace(base, materialize_s=20.0),
        "off@1s": dataclasses.replace(base, changelog=False, checkpoint_s=1.0),
    }


def main() -> None:
    """Run all workloads asked for; one record each."""
    options = parser(__doc__ or "", seconds=30, reps=3, workloads=WORKLOADS)
    options.add_argument("--variants", nargs="+", help="only these")
    parsed = parse(options)
    for name in parsed.workload:
        base = RunSpec(
            workload(parsed, name),
            warm_s=parsed.warm,
            seconds=parsed.seconds,
            flush_rows=parsed.flush_rows,
            seed=parsed.seed,
        )
        specs = variants(base)
        chosen = parsed.variants or list(specs)

        def run(variant: str, specs: dict[str, RunSpec] = specs) -> Result:
            result: Result = in_child(measure, specs[variant])
            return result

        print(f"{name}: {', '.join(chosen)}", flush=True)
        runs = alternate(chosen, parsed.reps, run, SHOW)
        summary = {
            f"{over} / {under}": ratios(runs, over, under, "records_per_s")
            for over in chosen
            if over.startswith("on")
            for under in chosen
            if under.startswith("off")
        }
        result = {
            "workload": name,
            "throughput_ratios": summary,
            "records_per_s": medians(runs, "records_per_s"),
            "cpu_us_per_record": medians(runs, "cpu_us_per_record"),
            "runs": runs,
        }
        print(json.dumps({k: v for k, v in result.items() if k != "runs"}, indent=1), flush=True)
        if not parsed.quick:
            records.append("throughput", base.describe(), result)


if __name__ == "__main__":
    main()
