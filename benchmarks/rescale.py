"""Restore time with more or fewer subtasks against the same number, from the same checkpoint.

    python -m benchmarks.rescale --parallelism 4 --to 4 8 2 1
    python -m benchmarks.rescale --throttled

The word count runs once and is stopped hard right after a checkpoint. Then restores with each
parallelism alternate, each in a fresh process: from the start of the runner until all tasks run.
The store is the same for all of them: each restore reads a copy of what the run left.
"""

import dataclasses
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.harness import records
from benchmarks.harness.options import QUICK_DIVISOR, parse, parser, workload
from benchmarks.harness.pairs import Result, alternate, medians, ratios
from tidelog.bench.children import in_child
from tidelog.bench.embedded.jobs import word_count
from tidelog.bench.embedded.restoring import restore
from tidelog.bench.embedded.run import RunSpec, measure
from tidelog.bench.store.manners import Manners

SHOW = ("restore_s", "cpu_s", "fetched_mb")
JOB = "word-count"


def fill(spec: RunSpec, store: Path) -> dict[str, Any]:
    """Run the job once and leave its checkpoint."""
    result: dict[str, Any] = measure(spec, store=store)
    return result


def restored(spec: RunSpec, store: Path) -> Result:
    """Restore in this process."""
    found = restore(spec, word_count, ["first"], store)
    return {
        "restore_s": round(found.running_s, 3),
        "cpu_s": round(found.cpu_s, 3),
        "fetched_mb": round(found.downloaded_bytes / 1e6, 1),
    }


def experiment(base: RunSpec, parallelisms: list[int], reps: int, *, record: bool) -> None:
    """Fill one store, then alternate restores of it with each parallelism."""
    specs = {f"to {n}": dataclasses.replace(base, parallelism=n) for n in parallelisms}
    same = f"to {base.parallelism}"
    specs.setdefault(same, base)
    with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as directory:
        store = Path(directory) / "store"
        filled = in_child(fill, dataclasses.replace(base, link=None), store)
        print(f"{JOB} ran with {base.parallelism} subtasks: {filled['seconds']} s", flush=True)

        def run(name: str) -> Result:
            copy = Path(directory) / "copy"
            shutil.copytree(store, copy)
            try:
                return in_child(restored, specs[name], copy)
            finally:
                shutil.rmtree(copy)

        run(same)  # warm-up of page cache and byte code
        runs = alternate(list(specs), reps, run, SHOW)
    result: dict[str, Any] = {
        "from": base.parallelism,
        "restore_s": medians(runs, "restore_s"),
        "fetched_mb": medians(runs, "fetched_mb"),
        "ratios": {
            f"{name} / {same} {figure}": ratios(runs, name, same, figure)
            for name in specs
            if name != same
            for figure in ("restore_s", "cpu_s")
        },
    }
    print(json.dumps(result, indent=1), flush=True)
    if record:
        records.append("rescale", base.describe(), {**result, "fill": filled, "runs": runs})


def main() -> None:
    """Run all workloads asked for; one record each."""
    options = parser(__doc__ or "", seconds=0, reps=3, workloads=["200x1M"])
    add = options.add_argument
    add("--parallelism", type=int, default=4, help="of the run that is restored")
    add("--to", type=int, nargs="+", default=[8, 2, 1], help="of the restores, besides the same")
    add("--records", type=int, default=3_000_000, help="length of the run")
    add("--throttled", action="store_true", help="restore behind 30 ms and 50 MB/s")
    parsed = parse(options)
    for name in parsed.workload:
        spec = RunSpec(
            workload(parsed, name),
            warm_s=0.0,
            records=parsed.records // QUICK_DIVISOR if parsed.quick else parsed.records,
            link=Manners() if parsed.throttled else None,
            parallelism=parsed.parallelism,
            seed=parsed.seed,
        )
        experiment(spec, parsed.to, parsed.reps, record=not parsed.quick)


if __name__ == "__main__":
    main()
