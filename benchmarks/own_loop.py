"""State for a program's own loop beside what else a program could take: time of a get, of a set, of
1000 sets made durable.

    python benchmarks/own_loop.py >> benchmarks/results/decisions/own-loop.jsonl

Stores take turns within a round, on keys that were used before. `cpu_us` is processor time of the
whole process, threads of tidelog included; `wall_us` is what the caller waits. The store of Quix
Streams is measured where it is installed (`pip install 'tidelog[peers]'`), and skipped elsewhere.
"""

import dbm
import json
import os
import shelve
import shutil
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from rocksdict import Rdict

import tidelog
from tidelog import JobConfig, Schedule, Value
from tidelog_bench.session import environment

ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 11
CALLS = 10_000
KEYS = [f"user-{number}" for number in range(2000)]
DURABLE = 1000


class Store(NamedTuple):
    """One store under test."""

    get: Callable[[str], Any]
    set: Callable[[str, int], Any]
    commit: Callable[[], Any]
    """Make durable what was set."""


@contextmanager
def plain_dict(_: Path) -> Iterator[Store]:
    kept: dict[str, int] = {}
    yield Store(kept.get, kept.__setitem__, int)


@contextmanager
def database(directory: Path) -> Iterator[Store]:
    config = JobConfig(checkpoint=Schedule(interval=1.0))
    with tidelog.open(str(directory / "tidelog"), {"n": Value(int)}, config=config) as db:
        key = db.key

        def commit() -> None:
            db.checkpoint()

        def put(name: str, value: int) -> None:
            key(name).n.set(value)

        yield Store(lambda name: key(name).n.get(), put, commit)


@contextmanager
def kept_handles(directory: Path) -> Iterator[Store]:
    """The program keeps `db.key(key).n`."""
    config = JobConfig(checkpoint=Schedule(interval=1.0))
    with tidelog.open(str(directory / "handles"), {"n": Value(int)}, config=config) as db:
        handles = {name: db.key(name).n for name in KEYS}

        def put(name: str, value: int) -> None:
            handles[name].set(value)

        yield Store(lambda name: handles[name].get(), put, db.checkpoint)


@contextmanager
def shelf(directory: Path) -> Iterator[Store]:
    with shelve.open(str(directory / "shelf")) as kept:
        yield Store(kept.get, kept.__setitem__, kept.sync)


@contextmanager
def sqlite(directory: Path) -> Iterator[Store]:
    connection = sqlite3.connect(directory / "state.db", isolation_level=None)
    connection.execute("pragma journal_mode=wal")
    connection.execute("pragma synchronous=full")
    connection.execute("create table n (key text primary key, value integer) without rowid")
    connection.execute("begin")

    def get(name: str) -> Any:
        found = connection.execute("select value from n where key = ?", (name,)).fetchone()
        return None if found is None else found[0]

    def put(name: str, value: int) -> None:
        connection.execute("insert or replace into n values (?, ?)", (name, value))

    def commit() -> None:
        connection.execute("commit")
        connection.execute("begin")

    yield Store(get, put, commit)
    connection.close()


@contextmanager
def rocksdb(directory: Path) -> Iterator[Store]:
    kept = Rdict(str(directory / "rocks"))
    yield Store(kept.get, kept.__setitem__, lambda: kept.flush_wal(sync=True))
    kept.close()


@contextmanager
def quix(directory: Path) -> Iterator[Store]:
    from quixstreams.state.rocksdb import RocksDBStore  # noqa: PLC0415

    with RocksDBStore(name="n", stream_id="users", base_dir=str(directory / "quix")) as store:
        partition = store.assign_partition(0)
        now = [partition.begin()]

        def get(name: str) -> Any:
            return now[0].as_state(prefix=name.encode()).get("n")

        def put(name: str, value: int) -> None:
            now[0].as_state(prefix=name.encode()).set("n", value)

        def commit() -> None:
            now[0].prepare()
            now[0].flush()
            now[0] = partition.begin()

        yield Store(get, put, commit)
        commit()


STORES = {
    "dict": plain_dict,
    "tidelog": database,
    "tidelog, handles kept": kept_handles,
    "shelve": shelf,
    "sqlite3": sqlite,
    "rocksdict": rocksdb,
    "quixstreams": quix,
}


def gets(store: Store) -> int:
    get = store.get
    for at in range(CALLS):
        get(KEYS[at % len(KEYS)])
    return CALLS


def sets(store: Store) -> int:
    put = store.set
    for at in range(CALLS):
        put(KEYS[at % len(KEYS)], at)
    return CALLS


def durable(store: Store) -> int:
    for at in range(DURABLE):
        store.set(KEYS[at], at)
    store.commit()
    return 1


def measured(work: Callable[[Store], int], store: Store) -> tuple[float, float]:
    """Microseconds of wall and processor time of a call."""
    wall, cpu = time.perf_counter(), time.process_time()
    calls = work(store)
    return (time.perf_counter() - wall) / calls * 1e6, (time.process_time() - cpu) / calls * 1e6


def quix_version() -> dict[str, str]:
    with suppress(PackageNotFoundError):
        return {"quixstreams": version("quixstreams")}
    return {}


def main() -> None:
    directory = Path(tempfile.mkdtemp(prefix="own-loop-", dir=os.environ.get("TMPDIR")))
    skipped: dict[str, str] = {}
    runs: dict[tuple[str, str], list[tuple[float, float]]] = {}
    with ExitStack() as stack:
        stores = {}
        for name, opened in STORES.items():
            try:
                stores[name] = stack.enter_context(opened(directory))
            except ImportError as error:
                skipped[name] = str(error)
        for number in range(ROUNDS + 1):
            for work in (sets, gets, durable):
                for name, store in stores.items():
                    found = measured(work, store)
                    if number:  # the first round fills
                        runs.setdefault((work.__name__, name), []).append(found)
    module = dbm.whichdb(str(directory / "shelf"))
    shutil.rmtree(directory)
    about = {
        "experiment": "own_loop",
        "machine": environment.machine(),
        "versions": environment.versions() | quix_version(),
        "revision": environment.revision(),
        "load": environment.load(),
        "dbm": module,
        "skipped": skipped,
    }
    for (work_name, name), found in runs.items():
        line = {**about, "operation": work_name, "store": name}
        for which, times in zip(("wall_us", "cpu_us"), zip(*found, strict=True), strict=True):
            line[which] = {
                "min": round(min(times), 3),
                "median": round(median(times), 3),
                "max": round(max(times), 3),
            }
        line["runs"] = [[round(value, 3) for value in run] for run in found]
        print(json.dumps(line))


if __name__ == "__main__":
    main()
