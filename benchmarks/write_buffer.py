"""The word count through the write buffer, log on, against direct updates of RocksDB.

    python -m benchmarks.write_buffer --workload 16x5M zipf50k

`direct` gets and puts every word of a buffer in the same pipeline, without log or state in
checkpoints; `bare` does the same in a plain loop without any pipeline at all.
"""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rocksdict import Rdict, WriteOptions

from benchmarks.harness import records
from benchmarks.harness.options import parse, parser, workload
from benchmarks.harness.pairs import Result, alternate, medians, ratios
from tidelog.bench.children import in_child
from tidelog.bench.embedded.jobs import direct_count
from tidelog.bench.embedded.meter import rates
from tidelog.bench.embedded.run import RunSpec, measure, scratch
from tidelog.bench.embedded.stages import Stages
from tidelog.table.rocksdb import RocksTableFactory
from tidelog.table.rocksdb_options import RocksOptions, table_options

SHOW = ("records_per_s", "cpu_us_per_record")
_COUNT = struct.Struct("<q")


def open_database(directory: Path) -> Rdict:
    """RocksDB with the options of tidelog's own tables."""
    factory = RocksTableFactory()
    options = table_options(RocksOptions(), factory._cache, factory._buffers)
    return Rdict(str(directory), options)


def updater(database: Rdict) -> Callable[[str, int], None]:
    """Adds to the count of one word: a get and a put, no WAL."""
    get, put, pack, unpack = database.get, database.put, _COUNT.pack, _COUNT.unpack
    options = WriteOptions()
    # A property at run time, whatever rocksdict's stub says.
    options.disable_wal = True  # type: ignore[assignment, method-assign]

    def add(word: str, count: int) -> None:
        key = word.encode()
        stored = get(key)
        put(key, pack(count if stored is None else unpack(stored)[0] + count), options)

    return add


def direct(spec: RunSpec) -> dict[str, Any]:
    """The pipeline with direct updates."""
    with scratch() as directory:
        add = updater(open_database(directory / "db"))

        def update(pairs: list[tuple[str, int]]) -> list[Any]:
            for word, count in pairs:
                add(word, count)
            return []

        result: dict[str, Any] = measure(spec, lambda stages: direct_count(stages.read, update))
        return result


def bare(spec: RunSpec) -> dict[str, Any]:
    """A loop over the same buffers, word by word."""
    stages = Stages(spec.words(), warm_s=spec.warm_s, seconds=spec.seconds)
    with scratch() as directory:
        add = updater(open_database(directory))
        position = 0
        while (buffer := stages.read(position)) is not None:
            for word in buffer:
                add(word, 1)
            position += len(buffer)
    assert stages.start and stages.end
    return rates(stages.start, stages.end)


def main() -> None:
    """Run all workloads asked for; one record each."""
    options = parser(__doc__ or "", seconds=15, reps=2, workloads=["16x5M", "zipf50k"])
    parsed = parse(options)
    variants: dict[str, Callable[[RunSpec], Any]] = {
        "tidelog": measure,
        "direct": direct,
        "bare": bare,
    }
    for name in parsed.workload:
        spec = RunSpec(
            workload(parsed, name),
            warm_s=parsed.warm,
            seconds=parsed.seconds,
            flush_rows=parsed.flush_rows,
            seed=parsed.seed,
        )

        def run(variant: str, spec: RunSpec = spec) -> Result:
            result: Result = in_child(variants[variant], spec)
            return result

        print(name, flush=True)
        runs = alternate(list(variants), parsed.reps, run, SHOW)
        result = {
            "workload": name,
            "records_per_s": medians(runs, "records_per_s"),
            "cpu_us_per_record": medians(runs, "cpu_us_per_record"),
            "throughput_ratios": {
                f"tidelog / {other}": ratios(runs, "tidelog", other, "records_per_s")
                for other in ("direct", "bare")
            },
        }
        print(json.dumps(result, indent=1), flush=True)
        if not parsed.quick:
            records.append("write_buffer", spec.describe(), {**result, "runs": runs})


if __name__ == "__main__":
    main()
