"""Restart time of a streaming query: the plug-in against stock Spark.

    python -m benchmarks.spark_restart
    python -m benchmarks.spark_restart --query join --partitions 16

For each store one query runs without delays and is stopped after a batch that leaves changelogs to
replay. Then restarts alternate: each copies that checkpoint, and a new application commits one more
batch, behind delayed requests. The time is from the start of the query to that commit.
"""

import argparse
import dataclasses
import shutil
import time
from pathlib import Path
from typing import Any, Final

from benchmarks.harness import records
from benchmarks.harness.pairs import Result, alternate, medians, ratios
from benchmarks.spark_cell import Cell
from benchmarks.spark_figures import by_kind, difference
from benchmarks.spark_options import about, add_common, cell_of, show
from benchmarks.spark_queries import QUERIES
from benchmarks.spark_run import await_batch, counts_at, session, start
from tidelog.bench.children import in_child
from tidelog.bench.embedded.run import scratch

SHOW = ("restart_ms", "first_batch_ms", "requests")
LAST_BATCH: Final = 28
"""Writes version 29: stock's last snapshot is of version 20, so it replays 9 changelogs. To see the
plug-in's longest chains: `--last-batch 178 --conf spark.tidelog.snapshot.interval=10min`."""

_PREPARE_TRIGGER_MS = 1500


def prepare(cell: Cell, store: str, checkpoint: Path, last: int) -> None:
    """Run to batch `last`; the pause before the next trigger leaves no batch half done."""
    with scratch() as directory, session(cell, store, directory) as spark:
        query = start(spark, cell, checkpoint)
        await_batch(spark, query, last)
        query.stop()


def restart(cell: Cell, store: str, prepared: Path, last: int) -> dict[str, Any]:
    """Commit one more batch on a copy of the checkpoint."""
    with scratch() as directory, session(cell, store, directory) as spark:
        checkpoint = directory / "checkpoint"
        shutil.copytree(prepared, checkpoint)
        before = time.perf_counter()
        query = start(spark, cell, checkpoint)
        await_batch(spark, query, last + 1)
        seconds = time.perf_counter() - before
        query.stop()
        first = next(p for p in query.recentProgress if p["batchId"] == last + 1)
        counts = difference(counts_at(spark, last + 1), {})
        return {
            "restart_ms": round(seconds * 1e3),
            "first_batch_ms": first["durationMs"]["triggerExecution"],
            "first_batch_id": query.recentProgress[0]["batchId"],
            "requests": sum(count for count, _ in counts.values()),
            "requests_by_kind": by_kind(counts, 1),
            "state_ms": _restore_metrics(first),
        }


def _restore_metrics(progress: Any) -> dict[str, int]:
    """What the state stores say of loading, summed over tasks."""
    found: dict[str, int] = {}
    for operator in progress["stateOperators"]:
        for name, value in operator["customMetrics"].items():
            if "load" in name.lower() or "replay" in name.lower():
                found[name] = found.get(name, 0) + value
    return found


def experiment(cell: Cell, last: int, stores: list[str], reps: int, *, record: bool) -> None:
    """Prepare both checkpoints, then alternate restarts of them."""
    print(f"--- restart of {cell.name}", flush=True)
    with scratch() as directory:
        slow = dataclasses.replace(
            cell, latency_ms=0, trigger_ms=_PREPARE_TRIGGER_MS, maintenance_ms=1000
        )
        for store in stores:
            in_child(prepare, slow, store, directory / store, last)

        def run(store: str) -> Result:
            result: Result = in_child(restart, cell, store, directory / store, last)
            return result

        runs = alternate(stores, reps, run, SHOW)
    result: dict[str, Any] = {
        "cell": cell.name,
        **{figure: medians(runs, figure) for figure in SHOW},
    }
    result["requests_by_kind"] = {store: of[-1]["requests_by_kind"] for store, of in runs.items()}
    if len(runs) > 1:
        result["tidelog / stock"] = {
            figure: ratios(runs, "tidelog", "stock", figure) for figure in SHOW
        }
    show(result)
    if record:
        records.append(
            "spark_restart",
            cell.describe() | about() | {"last_batch": last},
            {**result, "runs": runs},
        )


def main() -> None:
    """One record per query."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_common(options)
    add = options.add_argument
    add("--query", nargs="+", choices=sorted(QUERIES), default=["wc"])
    add("--cores", type=int, default=8, help="task threads (8)")
    add("--partitions", type=int, default=64, help="shuffle partitions (64)")
    add("--latency-ms", type=int, default=30, help="per request (30)")
    add("--last-batch", type=int, default=LAST_BATCH, help=f"before the restart ({LAST_BATCH})")
    parsed = options.parse_args()
    for query in parsed.query:
        cell = dataclasses.replace(
            cell_of(parsed),
            query=query,
            cores=parsed.cores,
            partitions=parsed.partitions,
            latency_ms=parsed.latency_ms,
        )
        reps = 1 if parsed.quick else parsed.reps
        experiment(cell, parsed.last_batch, parsed.stores, reps, record=not parsed.quick)


if __name__ == "__main__":
    main()
