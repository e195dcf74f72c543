"""Batch duration and requests of a streaming query: the plug-in against stock Spark.

    python -m benchmarks.spark_commit                                  # the figures to reach
    python -m benchmarks.spark_commit --query join --latency-ms 0 --cores 2 --partitions 8
    python -m benchmarks.spark_commit --stores stock --quick

Each run is a Spark application of its own; the stores alternate. The checkpoint lies behind a file
system that counts requests and adds a delay to each; both stores write atomic files as one PUT.
Needs pyspark and Java.
"""

import argparse
import dataclasses
import itertools
from typing import Any

from benchmarks.harness import records
from benchmarks.harness.pairs import Result, Runs, alternate, medians, ratios
from benchmarks.spark_cell import STORES, Cell
from benchmarks.spark_figures import distribution
from benchmarks.spark_options import about, add_common, cell_of, show
from benchmarks.spark_queries import QUERIES
from benchmarks.spark_run import measure
from tidelog.bench.children import in_child

SHOW = ("median_ms", "p99_ms", "cpu_ms", "log_puts", "requests")
FIGURES = ("median_ms", "p99_ms", "p99_over_median", "cpu_ms", "log_puts", "roll_ups", "requests")
RATIOS = ("median_ms", "p99_ms", "cpu_ms", "log_puts", "requests")


def summary(cell: Cell, runs: Runs) -> dict[str, Any]:
    """Spreads over the repetitions, ratios within them, and all batches of a store together."""
    result: dict[str, Any] = {
        "cell": cell.name,
        **{figure: medians(runs, figure) for figure in FIGURES},
        "pooled_ms": {
            store: distribution([ms for run in of_store for ms in run["batches_ms"]])
            for store, of_store in runs.items()
        },
    }
    if set(STORES) <= set(runs):
        result["tidelog / stock"] = {
            figure: ratios(runs, "tidelog", "stock", figure) for figure in RATIOS
        }
    return result


def experiment(cell: Cell, stores: list[str], reps: int, *, record: bool) -> dict[str, Any]:
    """All repetitions of one cell."""

    def run(store: str) -> Result:
        result: Result = in_child(measure, cell, store)
        return result

    print(f"--- {cell.name}, {cell.batches} batches", flush=True)
    runs = alternate(stores, reps, run, SHOW)
    result = summary(cell, runs)
    show(result)
    if record:
        records.append("spark_commit", cell.describe() | about(), {**result, "runs": runs})
    return result


def main() -> None:
    """Every combination asked for; one record each."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_common(options)
    add = options.add_argument
    add("--query", nargs="+", choices=sorted(QUERIES), default=["wc", "join"])
    add("--cores", nargs="+", type=int, default=[8], help="task threads (8)")
    add("--partitions", nargs="+", type=int, default=[64], help="shuffle partitions (64)")
    add("--latency-ms", nargs="+", type=int, default=[30, 0], help="per request (30 0)")
    parsed = options.parse_args()
    combinations = itertools.product(
        parsed.latency_ms, parsed.query, parsed.cores, parsed.partitions
    )
    for latency, query, cores, partitions in combinations:
        cell = dataclasses.replace(
            cell_of(parsed), query=query, cores=cores, partitions=partitions, latency_ms=latency
        )
        reps = 1 if parsed.quick else parsed.reps
        experiment(cell, parsed.stores, reps, record=not parsed.quick)


if __name__ == "__main__":
    main()
