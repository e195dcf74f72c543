"""What the requests of a streaming query cost on S3: the plug-in against stock Spark.

    python -m benchmarks.spark_bill
    python -m benchmarks.spark_bill --query wc join --partitions 200 --executors 10

One executor's share of the partitions is run with a fixed trigger, and with a maintenance interval
that has as many batches as Spark's 60 s have at a batch a second. Of its requests per batch

    executor  changelogs, segments, snapshots, state directories: one such share per executor
    query     commits, offsets, roll-ups of the index, the rest: once

    per batch = executors x executor + query
    dollars a day = 86,400 batches x (PUT and LIST per batch x 0.005 + GET and HEAD x 0.0004) / 1000

at list prices per 1000 requests; DELETE is free. Bytes, and S3A's own probes, are not counted.
"""

import argparse
import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from benchmarks.harness import records
from benchmarks.harness.pairs import Result, alternate, ratios, spread
from benchmarks.spark_cell import Cell
from benchmarks.spark_options import about, add_common, cell_of, show
from benchmarks.spark_queries import QUERIES
from benchmarks.spark_run import measure
from tidelog.bench.children import in_child

SHOW = ("median_ms", "requests", "dollars_per_day")
BATCHES_A_DAY: Final = 86_400
MAINTENANCE_BATCHES: Final = 60
DOLLARS: Final = {
    **dict.fromkeys(("put", "list", "copy", "mkdirs"), 0.005 / 1000),
    **dict.fromkeys(("get", "head"), 0.0004 / 1000),
    "delete": 0.0,
}
PER_QUERY: Final = ("commits", "offsets", "roll-up", "other")

ByKind = Mapping[str, Mapping[str, float]]


def scaled(requests: ByKind, executors: int) -> dict[str, dict[str, float]]:
    """Requests per batch of the whole query, by kind and class, from those of one executor."""
    return {
        kind: {
            file: round(count * (1 if file in PER_QUERY else executors), 3)
            for file, count in files.items()
        }
        for kind, files in requests.items()
    }


def dollars_per_day(requests: ByKind) -> float:
    """What these requests per batch cost in a day at a batch a second."""
    per_batch = sum(DOLLARS[kind] * sum(files.values()) for kind, files in requests.items())
    return round(per_batch * BATCHES_A_DAY, 2)


def bill(cell: Cell, store: str, executors: int) -> dict[str, Any]:
    """Run one executor's share and scale it."""
    result = in_child(measure, cell, store)
    whole = scaled(result["requests_by_kind"], executors)
    by_class: dict[str, float] = {}
    for kind, files in whole.items():
        for file, count in files.items():
            cost = dollars_per_day({kind: {file: count}})
            by_class[file] = round(by_class.get(file, 0) + cost, 2)
    return {
        **result,
        "whole_query": whole,
        "dollars_per_day": dollars_per_day(whole),
        "dollars_by_class": by_class,
        "puts_per_day": round(sum(whole["put"].values()) * BATCHES_A_DAY),
    }


def experiment(cell: Cell, executors: int, stores: list[str], reps: int, *, record: bool) -> None:
    """Both stores in turn; one record."""
    print(f"--- bill of {cell.query}, {cell.partitions} x {executors} partitions", flush=True)

    def run(store: str) -> Result:
        return bill(cell, store, executors)

    runs = alternate(stores, reps, run, SHOW)
    result: dict[str, Any] = {"cell": cell.name, "executors": executors}
    for figure in ("dollars_per_day", "puts_per_day"):
        result[figure] = {store: spread([r[figure] for r in of]) for store, of in runs.items()}
        if len(runs) > 1:
            result[f"{figure}, tidelog / stock"] = ratios(runs, "tidelog", "stock", figure)
    result["dollars_by_class"] = {store: of[-1]["dollars_by_class"] for store, of in runs.items()}
    show(result)
    if record:
        settings = cell.describe() | about() | {"executors": executors}
        records.append("spark_bill", settings, {**result, "runs": runs})


def main() -> None:
    """One record per query."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_common(options)
    options.set_defaults(reps=1, batches=180, warm=120)
    add = options.add_argument
    add("--query", nargs="+", choices=sorted(QUERIES), default=["wc"])
    add("--partitions", type=int, default=200, help="of the whole query (200)")
    add("--executors", type=int, default=10, help="that share them (10)")
    add("--trigger-ms", type=int, default=400, help="stands for the second of a batch (400)")
    parsed = options.parse_args()
    for query in parsed.query:
        cell = dataclasses.replace(
            cell_of(parsed),
            query=query,
            cores=2,
            partitions=max(1, parsed.partitions // parsed.executors),
            latency_ms=0,
            trigger_ms=parsed.trigger_ms,
            maintenance_ms=parsed.trigger_ms * MAINTENANCE_BATCHES,
        )
        reps = 1 if parsed.quick else parsed.reps
        experiment(cell, parsed.executors, parsed.stores, reps, record=not parsed.quick)


if __name__ == "__main__":
    main()
