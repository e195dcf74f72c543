"""Local recovery: what the copies cost a running job, and what they save a restart.

    python -m benchmarks.local_recovery --workload 200x1M --reps 3

First the same word count alternates with and without local copies, each run in a fresh process.
Then a job is stopped hard right after a checkpoint, and restarts of it alternate: from the local
copies, and from the store behind 30 ms per request and 50 MB/s.
"""

import dataclasses
import json
import tempfile
from pathlib import Path

from benchmarks.harness import records
from benchmarks.harness.options import QUICK_DIVISOR, parse, parser, workload
from benchmarks.harness.pairs import Result, alternate, medians, ratios
from benchmarks.restore import fill, restore
from tidelog.bench.children import in_child
from tidelog.bench.embedded.run import RunSpec, measure
from tidelog.bench.store.manners import Manners

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
    far = dataclasses.replace(base, link=Manners())

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
    options = parser(__doc__ or "", seconds=0, reps=3, workloads=["200x1M"])
    options.add_argument("--records", type=int, default=2_000_000, help="of every run")
    parsed = parse(options)
    for name in parsed.workload:
        count = parsed.records // QUICK_DIVISOR if parsed.quick else parsed.records
        # The same records in every run, several snapshots within it, and little log at its end.
        spec = RunSpec(
            workload(parsed, name),
            materialize_s=5.0,
            replay_s=0.5,
            warm_s=0.0,
            records=count,
            seed=parsed.seed,
        )
        with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as directory:
            result = {
                "cost": cost(spec, parsed.reps),
                "gain": gain(spec, parsed.reps, Path(directory)),
            }
        print(json.dumps(result, indent=1), flush=True)
        if not parsed.quick:
            records.append("local_recovery", spec.describe(), result)


if __name__ == "__main__":
    main()
