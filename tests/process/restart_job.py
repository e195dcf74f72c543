"""A job over a store with a narrow link, for tests that kill it while its tables arrive.

    python -m tests.process.restart_job '{"store": ..., "output": ..., "work": ..., "begin": ...}'

It prints `running` when it handles records, and `whole` when all files of its tables are here.
"""

import asyncio
import random
import sys
from base64 import b64encode
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from tidelog import FileSink, Job, Row, StatefulProcessor
from tidelog.checkpoint.config import CheckpointConfig
from tidelog.effects import Effects
from tidelog.materialize.schedule import MaterializeConfig
from tidelog.runtime.config import JobConfig
from tidelog.runtime.runner import JobRunner
from tidelog.state.config import Begin, RestoreConfig
from tidelog.storage.local import LocalStore
from tidelog.storage.retry import RetryingStore
from tidelog.table.rocksdb_options import RocksDBConfig
from tidelog_bench.embedded.jobs import ListSource
from tidelog_bench.store import NONE, LatencyProfile, ModelledStore

KEYS = 8_000
BASE = 24_000
"""Records that made the state."""
TOTAL = 30_000
_SPREAD = 2_654_435_761
_BUCKETS = 5
_SCAN_EVERY = 10
_NOISE = b64encode(random.Random(1).randbytes(1 << 18)).decode()
_PADDING = 120
_CHUNK = 20


class Start(msgspec.Struct, frozen=True):
    """One start of the job."""

    store: str
    output: str
    work: str
    begin: Begin = "when-whole"
    parallelism: int = 1
    makes_state: bool = False
    """The job only makes the state: it handles these records, and is killed then."""
    mb_per_s: float = 0.0
    """Of the link; 0: as fast as the disk."""
    latency_ms: float = 0.0


def key_of(number: int) -> str:
    return f"key-{number * _SPREAD % KEYS:06}"


def padding(number: int) -> str:
    start = number * 37 % (len(_NOISE) - _PADDING)
    return _NOISE[start : start + _PADDING]


class Counting(StatefulProcessor):
    """Counts the numbers of a key, in a value and by bucket in a map, which it scans regularly."""

    def init(self, handle: Any) -> None:
        self.total = handle.getValueState("total", "count int, sum bigint, padding string")
        self.buckets = handle.getMapState("buckets", "bucket int", "count int, padding string")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        for row in rows:
            count, total, _ = self.total.get() or (0, 0, "")
            count, total = count + 1, total + row.number
            self.total.update((count, total, padding(row.number)))
            bucket = (row.number % _BUCKETS,)
            seen = (self.buckets.getValue(bucket) or (0, ""))[0] + 1
            self.buckets.updateValue(bucket, (seen, padding(row.number + 1)))
            text = ""
            if row.number % _SCAN_EVERY == 0:
                entries = [(bucket, n) for (bucket,), (n, _) in self.buckets.iterator()]
                text = str(sorted(entries))
            yield Row(number=row.number, key=key[0], count=count, sum=total, buckets=text)


def expected() -> list[dict[str, Any]]:
    """All that the job writes, in the order of the numbers."""
    counts: dict[str, int] = defaultdict(int)
    sums: dict[str, int] = defaultdict(int)
    buckets: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    rows: list[dict[str, Any]] = []
    for number in range(TOTAL):
        key = key_of(number)
        counts[key] += 1
        sums[key] += number
        buckets[key][number % _BUCKETS] += 1
        text = str(sorted(buckets[key].items())) if number % _SCAN_EVERY == 0 else ""
        row = {"number": number, "key": key, "count": counts[key], "sum": sums[key]}
        rows.append(row | {"buckets": text})
    return rows


def job(start: Start) -> Job:
    chunk = 512 if start.makes_state else _CHUNK

    def read(position: int) -> list[Row] | None:
        if position >= TOTAL:
            return None
        end = min(position + chunk, BASE if start.makes_state else TOTAL)
        return [Row(number=number, key=key_of(number)) for number in range(position, end)]

    job = Job("restart")
    rows = job.source(ListSource(read, endless=False)).key_by(lambda row: (row.key,))
    counted = rows.transform_with_state(Counting, name="count")
    fields = ("number", "key", "count", "sum", "buckets")
    counted.map(tuple).sink(FileSink(start.output, fields=fields, roll_every=0))
    return job


@dataclass(frozen=True)
class _Lines:
    """What the test waits for, on standard output."""

    runner: JobRunner

    async def print(self) -> None:
        await self._once("running", lambda: self.runner.running)
        assert self.runner.incarnation is not None
        hydration = self.runner.incarnation.states.progress.hydration
        await self._once("whole", lambda: hydration.is_whole)

    async def _once(self, line: str, reached: Any) -> None:
        while not reached():
            await asyncio.sleep(0.005)
        print(line, flush=True)


async def main(start: Start) -> None:
    effects = Effects()
    narrow = LatencyProfile(start.latency_ms, start.mb_per_s, connection_mb_per_s=0)
    profile = narrow if start.mb_per_s else NONE
    link = ModelledStore(LocalStore(start.store, effects), effects.clock, profile, own_loop=True)
    config = JobConfig(
        parallelism=start.parallelism,
        key_groups=16,
        work_dir=Path(start.work),
        checkpoint=CheckpointConfig(interval=0.1, idle_interval=0.0),
        materialize=MaterializeConfig(interval=0.7),
        restore=RestoreConfig(begin=start.begin, whole_bytes=0),
        # Many small blocks and files.
        rocksdb=RocksDBConfig(
            write_buffer_bytes=128 << 10, block_bytes=512, target_file_bytes=64 << 10
        ),
    )
    runner = JobRunner(job(start), RetryingStore(link, config.retry, effects), config, effects)
    lines = asyncio.ensure_future(_Lines(runner).print())
    with closing(effects.offload):
        await runner.run()
    lines.cancel()
    with suppress(asyncio.CancelledError):
        await lines


if __name__ == "__main__":
    asyncio.run(main(msgspec.json.decode(sys.argv[1], type=Start)))
