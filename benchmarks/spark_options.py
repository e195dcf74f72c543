"""Options that the Spark benchmarks share, how they print, and what their records say."""

import argparse
import json
import subprocess
from typing import Any

import pyspark

from benchmarks.spark_cell import STORES, Cell
from tidelog.spark import plugin_jar
from tidelog.spark.toolchain import find_java


def add_common(options: argparse.ArgumentParser) -> None:
    """Size of a run, stores and repetitions."""
    default = Cell()
    add = options.add_argument
    add("--stores", nargs="+", choices=STORES, default=list(STORES))
    add("--reps", type=int, default=3, help="repetitions; the stores alternate within each (3)")
    add("--batches", type=int, default=default.batches, help="that count, per run (60)")
    add("--warm", type=int, default=default.warm, help="batches before them (15)")
    add("--maintenance-s", type=float, default=20.0, help="Spark's maintenance interval (20)")
    add("--snapshot-every", type=int, default=default.snapshot_every, help="batches (10)")
    add("--checksum", action="store_true", help="Spark's checksum files, for both stores")
    add("--conf", nargs="+", default=[], metavar="KEY=VALUE", help="further settings of Spark")
    add("--quick", action="store_true", help="a few batches, once, no record kept")


def cell_of(parsed: argparse.Namespace) -> Cell:
    """A cell with the shared options, --quick applied."""
    return Cell(
        batches=10 if parsed.quick else parsed.batches,
        warm=5 if parsed.quick else parsed.warm,
        maintenance_ms=round(parsed.maintenance_s * 1000),
        snapshot_every=parsed.snapshot_every,
        checksum=parsed.checksum,
        jar=str(plugin_jar()),
        conf=tuple((key, value) for key, _, value in (c.partition("=") for c in parsed.conf)),
    )


def about() -> dict[str, Any]:
    """Versions that the general record lacks."""
    java = subprocess.run(
        [str(find_java()), "-version"], capture_output=True, text=True, check=True
    ).stderr.splitlines()[0]
    return {"pyspark": pyspark.__version__, "java": java}


def show(result: dict[str, Any]) -> None:
    """A line per figure."""
    for name, value in result.items():
        print(f"  {name}: {json.dumps(value)}", flush=True)
