"""CPU per record, end to end, against Flink's measured medians and against Bytewax.

    python -m benchmarks.cpu_per_record --workload 16x5M 200x2.85M --engines tidelog
    python -m benchmarks.cpu_per_record --workload 16x50k 200x1M

CPU is user and system time of the whole process: source, key encoding, state, log, compaction,
uploads. Both engines save their state every second.
"""

import json

from benchmarks.harness import records
from benchmarks.harness.bytewax_count import measure_bytewax
from benchmarks.harness.options import parse, parser, workload
from benchmarks.harness.pairs import Result, alternate, medians, ratios
from tidelog.bench.children import in_child
from tidelog.bench.embedded.run import RunSpec, measure

FLINK_US = {"16x5M": 7.5, "200x2.85M": 16.0}
"""Flink 2.3, changelog on, on the same kind of machine: microseconds of CPU per record."""
SHOW = ("cpu_us_per_record", "records_per_s")


def main() -> None:
    """Run all workloads asked for; one record each."""
    options = parser(__doc__ or "", seconds=20, reps=3, workloads=["16x50k", "200x1M"])
    engines = {"tidelog": measure, "bytewax": measure_bytewax}
    options.add_argument("--engines", nargs="+", choices=sorted(engines), default=list(engines))
    options.add_argument("--cold", action="store_true", help="start without any state")
    parsed = parse(options)
    for name in parsed.workload:
        spec = RunSpec(
            workload(parsed, name),
            warm_s=parsed.warm,
            seconds=parsed.seconds,
            flush_rows=parsed.flush_rows,
            filled=not parsed.cold,
            seed=parsed.seed,
        )

        def run(engine: str, spec: RunSpec = spec) -> Result:
            result: Result = in_child(engines[engine], spec)
            return result

        print(name, flush=True)
        runs = alternate(parsed.engines, parsed.reps, run, SHOW)
        result = {
            "workload": name,
            "cpu_us_per_record": medians(runs, "cpu_us_per_record"),
            "flink_cpu_us_per_record": FLINK_US.get(name),
        }
        if len(runs) == 2:
            for figure in SHOW:
                result[f"bytewax / tidelog {figure}"] = ratios(runs, "bytewax", "tidelog", figure)
        print(json.dumps(result, indent=1), flush=True)
        if not parsed.quick:
            records.append("cpu_per_record", spec.describe(), {**result, "runs": runs})


if __name__ == "__main__":
    main()
