"""Local recovery: what the copies cost a running job, and what they save a restart.

    python -m benchmarks.local_recovery --workload 16x5M --reps 3

First the same word count alternates with and without local copies, each run in a fresh process.
Then a job is stopped hard right after a checkpoint, and restarts of it alternate: from the local
copies, and from the store behind 30 ms per request and 50 MB/s.
"""

import dataclasses
import json
import tempfile
from pathlib import Path

from benchmarks.harness import records
from benchmarks.harness.children import in_child
from benchmarks.harness.options import QUICK_DIVISOR, parse, parser, workload
from benchmarks.harness.pairs import Result, alternate, medians, ratios
from benchmarks.harness.run import RunSpec, measure
from benchmarks.harness.stores import Link
from benchmarks.restore import fill, restore

JOB = "word-count"


def cost(base: RunSpec, reps: int) -> dict[str, object]:
    """Throughput and processor time of a job with copies against one without."""

    def run(name: str) -> Result:
        with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as directory:
            return in_child(measure, _copying(base, Path(directory), on=name == "on"))

    runs = alternate(["off", "on"], reps, run, ("records_per_s", "cpu_us_per_record"))
    return {
        "records_per_s": medians(runs, "records_per_s"),
        "on / off": {
            figure: ratios(runs, "on", "off", figure)
            for figure in ("records_per_s", "cpu_us_per_record")
        },
    }


def gain(base: RunSpec, reps: int, directory: Path) -> dict[str, object]:
    """Restore times from the copies and from a store that is far away."""
    store, copies = directory / "store", directory / "gain"
    ran = in_child(fill, _copying(base, copies, on=True), JOB, store)
    print(f"{JOB} ran: {ran['seconds']} s", flush=True)
    far = dataclasses.replace(base, link=Link())

    def run(name: str) -> Result:
        return in_child(restore, _copying(far, copies, on=name == "local"), JOB, store)

    run("local")  # warm-up of page cache and byte code
    runs = alternate(["local", "remote"], reps, run, ("restore_s", "replayed_changes", "table_mb"))
    return {
        "restore_s": medians(runs, "restore_s"),
        "table_mb": runs["local"][0]["table_mb"],
        "local / remote": ratios(runs, "local", "remote", "restore_s"),
    }


def _copying(spec: RunSpec, directory: Path, *, on: bool) -> RunSpec:
    return dataclasses.replace(spec, copies=str(directory) if on else None)


def main() -> None:
    """Both experiments on each workload; one record each."""
    options = parser(__doc__ or "", seconds=20, reps=3, workloads=["16x5M"])
    options.add_argument("--records", type=int, default=5_000_000, help="before the restarts")
    parsed = parse(options)
    for name in parsed.workload:
        count = parsed.records // QUICK_DIVISOR if parsed.quick else parsed.records
        timed = RunSpec(
            workload(parsed, name),
            materialize_s=5.0,  # several snapshots within a run
            warm_s=parsed.warm,
            seconds=parsed.seconds,
            seed=parsed.seed,
        )
        counted = dataclasses.replace(timed, warm_s=0.0, records=count)
        with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as directory:
            result = {
                "cost": cost(timed, parsed.reps),
                "gain": gain(counted, parsed.reps, Path(directory)),
            }
        print(json.dumps(result, indent=1), flush=True)
        if not parsed.quick:
            records.append("local_recovery", timed.describe(), result)


if __name__ == "__main__":
    main()
