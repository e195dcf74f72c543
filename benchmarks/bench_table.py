"""CPU, memory and snapshot costs of the RocksDB table under uniform random read-modify-write.

Every (variant, repetition) runs in its own process, variants alternate within a repetition, and
CPU is what counts: calls on the calling thread, and everything RocksDB does in its own threads.

    python benchmarks/bench_table.py --workload small --variants default,block_16k --reps 3
    python benchmarks/bench_table.py --summary          # table over benchmarks/results/table.jsonl
"""

import argparse
import json
import multiprocessing
import os
import random
import resource
import shutil
import statistics
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rocksdict import (
    BlockBasedOptions,
    Cache,
    ChecksumType,
    DataBlockIndexType,
    DBCompactionStyle,
    Options,
    WriteBufferManager,
)

from tidelog.table.port import TableFile
from tidelog.table.rocksdb import RocksTable, RocksTableFactory
from tidelog.table.rocksdb_options import RocksOptions, block_options, table_options

RESULTS = Path(__file__).parent / "results" / "decisions" / "table.jsonl"
MIB = 1 << 20
GET_BATCH = 2048
WRITE_BATCH = 16384


@dataclass(frozen=True)
class Workload:
    """`keys` distinct keys of `key_bytes`; a snapshot every `snapshot_every` records."""

    keys: int
    key_bytes: int
    value_bytes: int = 8
    records: int = 4_000_000
    snapshot_every: int = 1_500_000


WORKLOADS = {
    "small": Workload(keys=5_000_000, key_bytes=21),
    "wide": Workload(keys=2_850_000, key_bytes=200, records=2_000_000, snapshot_every=700_000),
    "wide1m": Workload(keys=1_000_000, key_bytes=200),
    "smoke": Workload(keys=50_000, key_bytes=21, records=200_000, snapshot_every=50_000),
}


def nothing(_: Any) -> None:
    """No change to the defaults."""


@dataclass(frozen=True)
class Variant:
    """Changes to the defaults: fields of RocksOptions, then raw RocksDB settings."""

    options: dict[str, Any] = field(default_factory=dict)
    db: Callable[[Options], None] = nothing
    block: Callable[[BlockBasedOptions], None] = nothing
    lru_cache: bool = False
    sorted_gets: bool = False


def universal(options: Options) -> None:
    options.set_compaction_style(DBCompactionStyle.universal())


def hash_index(block: BlockBasedOptions) -> None:
    block.set_data_block_index_type(DataBlockIndexType.binary_and_hash())
    block.set_data_block_hash_ratio(0.75)


VARIANTS = {
    "default": Variant(),
    "first_guess": Variant(
        {
            "write_buffer_bytes": 64 * MIB,
            "level0_files": 4,
            "memtable_bloom_ratio": 0.0,
            "mmap_reads": False,
        },
        lru_cache=True,
    ),
    "block_16k": Variant({"block_bytes": 16 << 10}),
    "hash_0.75": Variant(block=hash_index),
    "bloom_0": Variant({"bloom_bits_per_key": 0}),
    "lru_cache": Variant(lru_cache=True),
    "buffer_16": Variant({"write_buffer_bytes": 16 * MIB}),
    "buffer_64": Variant({"write_buffer_bytes": 64 * MIB}),
    "buffer_128": Variant({"write_buffer_bytes": 128 * MIB, "write_buffers_bytes": 384 * MIB}),
    "memtable_bloom_0": Variant({"memtable_bloom_ratio": 0.0}),
    "memtable_bloom_0.02": Variant({"memtable_bloom_ratio": 0.02}),
    "memtable_bloom_0.1": Variant({"memtable_bloom_ratio": 0.1}),
    "no_compression": Variant({"compression": "none"}),
    "zstd": Variant({"compression": "zstd"}),
    "universal": Variant(db=universal),
    "l0_4": Variant({"level0_files": 4}),
    "l0_12": Variant({"level0_files": 12}),
    "no_mmap": Variant({"mmap_reads": False}),
    "no_checksum": Variant(block=lambda b: b.set_checksum_type(ChecksumType.no_checksum())),
    "filters_for_hits": Variant(db=lambda o: o.set_optimize_filters_for_hits(True)),
    "sorted_gets": Variant(sorted_gets=True),
    "restart_4": Variant(block=lambda b: b.set_block_restart_interval(4)),
    "cache_512": Variant({"block_cache_bytes": 512 * MIB}),
}


def make_keys(workload: Workload) -> list[bytes]:
    """Sorted distinct row keys: key group, state id, a number, then hex digits."""
    rng = random.Random(7)
    tail = workload.key_bytes - 12
    return sorted(
        struct.pack(">HHQ", rng.randrange(128), 1, number * 0x9E3779B97F4A7C15 % (1 << 64))
        + rng.randbytes(tail // 2 + 1).hex().encode()[:tail]
        for number in range(workload.keys)
    )


def open_table(directory: Path, variant: Variant) -> tuple[RocksTable, Cache]:
    options = replace(RocksOptions(), **variant.options)
    size = options.block_cache_bytes
    cache = Cache(size) if variant.lru_cache else Cache.new_hyper_clock_cache(size, 0)
    buffers = WriteBufferManager(options.write_buffers_bytes, False)
    db_options = table_options(options, cache, buffers)
    variant.db(db_options)
    block = block_options(options, cache)
    variant.block(block)
    db_options.set_block_based_table_factory(block)
    return RocksTable(directory, db_options, options.target_file_bytes), cache


def resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / MIB


def process_cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


class Snapshots:
    """Takes snapshots as the runtime does: flush in a thread, then freeze in the caller."""

    def __init__(self, table: RocksTable, directory: Path) -> None:
        self.table = table
        self.directory = directory
        self.flush_ms: list[float] = []
        self.freeze_ms: list[float] = []
        self.new_mib: list[float] = []
        self.files: list[int] = []
        self._known: set[str] = set()
        self._flush: threading.Thread | None = None

    def begin(self) -> None:
        self._flush = threading.Thread(target=self._prepare)
        self._flush.start()

    def _prepare(self) -> None:
        start = time.perf_counter()
        self.table.prepare_snapshot()
        self.flush_ms.append(1e3 * (time.perf_counter() - start))

    def finish_if_ready(self) -> None:
        if self._flush is not None and not self._flush.is_alive():
            self._flush = None
            self.freeze()

    def freeze(self) -> None:
        self.newest = self.directory / f"snapshot-{len(self.files)}"
        start = time.perf_counter()
        files = self.table.snapshot(self.newest)
        self.freeze_ms.append(1e3 * (time.perf_counter() - start))
        self.new_mib.append(sum(f.size for f in self._new(files)) / MIB)
        self.files.append(len(files))

    def _new(self, files: list[TableFile]) -> Iterator[TableFile]:
        for file in files:
            if not (file.shared and file.name in self._known):
                self._known.add(file.name)
                yield file


def fill(table: RocksTable, workload: Workload, keys: list[bytes]) -> None:
    value = bytes(workload.value_bytes)
    for start in range(0, len(keys), 200_000):
        chunk = keys[start : start + 200_000]
        table.load(chunk, [value] * len(chunk))
    table.prepare_snapshot()


@dataclass
class Spent:
    """Seconds of the calling thread's CPU inside the table."""

    get: float = 0.0
    write: float = 0.0


def drive(
    table: RocksTable, workload: Workload, keys: list[bytes], snapshots: Snapshots, ordered: bool
) -> Spent:
    """The hot loop: get_many of random keys, then one sorted write per WRITE_BATCH updates."""
    rng = random.Random(11)
    spent = Spent()
    pending: dict[bytes, bytes] = {}
    clock = time.thread_time
    for done in range(0, workload.records, GET_BATCH):
        batch = rng.choices(keys, k=GET_BATCH)
        start = clock()
        if ordered:
            batch.sort()
        values = table.get_many(batch)
        spent.get += clock() - start
        assert None not in values
        pending.update(
            zip(batch, map(rng.randbytes, [workload.value_bytes] * GET_BATCH), strict=True)
        )
        if len(pending) >= WRITE_BATCH:
            rows = sorted(pending.items())
            columns = [key for key, _ in rows], [value for _, value in rows]
            start = clock()
            table.write(*columns)
            spent.write += clock() - start
            pending.clear()
        if done % workload.snapshot_every < GET_BATCH and done:
            snapshots.begin()
        snapshots.finish_if_ready()
    return spent


def measure(
    name: str, workload_name: str, repetition: int, root: Path, keys: list[bytes]
) -> dict[str, Any]:
    variant, workload = VARIANTS[name], WORKLOADS[workload_name]
    directory = Path(tempfile.mkdtemp(dir=root))
    before_mib = resident_mib()
    table, cache = open_table(directory / "live", variant)
    load_start, load_wall = process_cpu(), time.perf_counter()
    fill(table, workload, keys)
    load_cpu = process_cpu() - load_start
    load_wall = time.perf_counter() - load_wall
    snapshots = Snapshots(table, directory)
    snapshots.freeze()
    cpu, own, wall = process_cpu(), time.thread_time(), time.perf_counter()
    spent = drive(table, workload, keys, snapshots, variant.sorted_gets)
    wall = time.perf_counter() - wall
    background = (process_cpu() - cpu) - (time.thread_time() - own)
    snapshots.finish_if_ready()
    per_record = 1e6 / workload.records
    result = {
        "variant": name,
        "workload": workload_name,
        "repetition": repetition,
        "cpu_us": (spent.get + spent.write + background) * per_record,
        "get_us": spent.get * per_record,
        "write_us": spent.write * per_record,
        "background_us": background * per_record,
        "wall_us": wall * per_record,
        "load_cpu_us": 1e6 * load_cpu / workload.keys,
        "load_wall_us": 1e6 * load_wall / workload.keys,
        "table_mib": table.size_bytes() / MIB,
        "rss_mib": resident_mib() - before_mib,
        "cache_mib": cache.get_usage() / MIB,
        "flush_ms": snapshots.flush_ms,
        "freeze_ms": snapshots.freeze_ms,
        "new_mib": snapshots.new_mib,
        "files": snapshots.files,
    }
    table.close()
    result["open_ms"] = restore_ms(snapshots.newest)
    shutil.rmtree(directory)
    return result


def restore_ms(directory: Path) -> float:
    factory = RocksTableFactory()
    start = time.perf_counter()
    table = factory.restore(directory)
    elapsed = time.perf_counter() - start
    table.close()
    return 1e3 * elapsed


def in_child(function: Callable[..., Any], *args: Any) -> Any:
    """Run in a forked process that shares the keys; the parent never opens a database."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=lambda: sender.send(function(*args)))
    child.start()
    sender.close()
    result = receiver.recv()
    child.join()
    return result


def run(names: list[str], workload: str, repetitions: int, root: Path) -> None:
    root.mkdir(parents=True, exist_ok=True)
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    keys = make_keys(WORKLOADS[workload])
    for repetition in range(repetitions):
        for name in names:
            result = in_child(measure, name, workload, repetition, root, keys)
            with RESULTS.open("a") as out:
                out.write(json.dumps(result, sort_keys=True) + "\n")
            print(line(name, [result]), flush=True)


def spread(results: list[dict[str, Any]], key: str) -> str:
    values = [result[key] for result in results]
    if len(values) == 1:
        return f"{values[0]:.2f}"
    return f"{min(values):.2f}/{statistics.median(values):.2f}/{max(values):.2f}"


def line(name: str, results: list[dict[str, Any]]) -> str:
    columns = ("cpu_us", "get_us", "write_us", "background_us", "wall_us", "load_cpu_us")
    last = results[-1]
    new = "+".join(f"{mib:.0f}" for mib in last["new_mib"])
    freeze = max(max(result["freeze_ms"]) for result in results)
    return (
        f"{name:20} "
        + " ".join(f"{column[:-3]} {spread(results, column)}" for column in columns)
        + f" table {last['table_mib']:.0f} rss {last['rss_mib']:.0f} new {new} MiB"
        + f" files {last['files'][-1]} freeze <= {freeze:.1f} open {last['open_ms']:.0f} ms"
    )


def summary() -> None:
    """Per workload and variant: min/median/max, sorted by CPU, with the ratio to `default`."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for text in RESULTS.read_text().splitlines():
        result = json.loads(text)
        groups.setdefault((result["workload"], result["variant"]), []).append(result)
    median = {
        key: statistics.median(result["cpu_us"] for result in results)
        for key, results in groups.items()
    }
    for workload, name in sorted(groups, key=lambda key: (key[0], median[key])):
        base = median.get((workload, "default"))
        ratio = f"{median[workload, name] / base:.2f}x " if base else ""
        print(f"{workload:8} {ratio}{line(name, groups[workload, name])}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workload", choices=sorted(WORKLOADS), default="small")
    parser.add_argument("--variants", default="default", help=", ".join(VARIANTS))
    parser.add_argument("--reps", type=int, default=1)
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--summary", action="store_true")
    arguments = parser.parse_args()
    if arguments.summary:
        summary()
    else:
        names = arguments.variants.split(",")
        run(names, arguments.workload, arguments.reps, arguments.directory)


if __name__ == "__main__":
    main()
