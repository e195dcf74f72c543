"""How fast `tidelog verify` is, and how much memory a task takes.

    python -m benchmarks.verify_throughput
    python -m benchmarks.verify_throughput --workload 16x50k 16x5M

A job leaves a store per workload. Then `tidelog verify` runs on it as a process of its own, with
processes and with Spark, in turn. Throughput is what the store holds, in GB, over the whole run,
start-up included. Memory is the largest process of a run: it must not grow with the state.
Needs pyspark and Java.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

from benchmarks.harness import records
from benchmarks.harness.pairs import Result, alternate, medians, ratios
from benchmarks.spark_options import about, show
from tidelog.bench.children import in_child
from tidelog.bench.embedded.run import RunSpec, measure, scratch
from tidelog.bench.embedded.workload import WORKLOADS

ENGINES: Final = {
    "local": ("--engine", "local", "--jobs", "2"),
    "spark": ("--engine", "spark", "--master", "local[2]"),
}
SHOW: Final = ("seconds", "gb_per_minute", "largest_process_mb")


def fill(spec: RunSpec, store: Path) -> Any:
    """Run the word count once; its store stays."""
    return measure(spec, store=store)


def verify(engine: str, store: Path) -> Result:
    """One verification; call it in a fresh process."""
    stored = sum(path.stat().st_size for path in store.rglob("*") if path.is_file())
    command = [sys.executable, "-m", "tidelog", "verify", str(store), "--json", *ENGINES[engine]]
    started = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds = time.perf_counter() - started
    document = json.loads(done.stdout)
    largest_kb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return {
        "seconds": round(seconds, 2),
        "stored_mb": round(stored / 1e6, 1),
        "checkpoints": len(document["checkpoints"]),
        "gb_per_minute": round(stored / 1e9 / seconds * 60, 3),
        "largest_process_mb": round(largest_kb / 1024),
    }


def experiment(workload: str, spec: RunSpec, reps: int, *, record: bool) -> None:
    """Fill a store, alternate the engines."""
    with scratch() as directory:
        store = directory / "store"
        in_child(fill, spec, store)
        print(f"--- verify {workload}", flush=True)

        def run(engine: str) -> Result:
            return in_child(verify, engine, store)

        runs = alternate(tuple(ENGINES), reps, run, SHOW)
    result: dict[str, Any] = {
        "workload": workload,
        "stored_mb": runs["local"][0]["stored_mb"],
        **{figure: medians(runs, figure) for figure in SHOW},
        "seconds, spark / local": ratios(runs, "spark", "local", "seconds"),
    }
    show(result)
    if record:
        records.append("verify_throughput", spec.describe() | about(), {**result, "runs": runs})


def main() -> None:
    """One record per workload."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = options.add_argument
    add("--workload", nargs="+", choices=sorted(WORKLOADS), default=["16x50k", "16x5M"])
    add("--seconds", type=float, default=20.0, help="that the job runs (20)")
    add("--reps", type=int, default=3, help="the engines alternate within each (3)")
    add("--quick", action="store_true", help="a fiftieth of the keys, 3 s, once, no record kept")
    parsed = options.parse_args()
    for name in parsed.workload:
        workload = WORKLOADS[name].scaled(50) if parsed.quick else WORKLOADS[name]
        seconds, reps = (3.0, 1) if parsed.quick else (parsed.seconds, parsed.reps)
        spec = RunSpec(workload, seconds=seconds)
        experiment(name, spec, reps, record=not parsed.quick)


if __name__ == "__main__":
    main()
