"""State for a program's own loop beside what else a program could take.

    python benchmarks/own_loop.py
    python benchmarks/own_loop.py --pairs 5 --json >> benchmarks/results/decisions/own-loop.jsonl

Every store does the same work, a fresh one in each pair, and they take turns within it. A *step*
sets a key and notes how far the input is done; the state is made durable once a second, and at the
end, with the position, so that a program that is killed goes on without losing or doubling a step.
`dict` shows what the loop itself costs: nothing of it is durable. Ratios are of wall time, formed
within a pair. It takes a minute.
"""

import argparse
import json
import random
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from rocksdict import Rdict, WriteBatch

import tidelog
from tidelog import CheckpointConfig, JobConfig, ValueState
from tidelog_bench.session import environment

STEPS = 300_000
FEW = 1000
MANY = 50_000
BATCH = 100
DURABLE = 1000


class Store(NamedTuple):
    """One store under test."""

    get: Callable[[str], Any]
    set: Callable[[str, int], Any]
    step: Callable[[str, int], Any]
    """Set a key, and note the position that this has done."""
    batch: Callable[[list[tuple[str, int]], int], Any]
    """Set several keys, and note the position that this has done."""
    commit: Callable[[], Any]
    """Make durable what was done."""
    commits_itself: bool = False
    """The store makes itself durable every second, without a call of `commit`."""


@contextmanager
def plain_dict(_: Path) -> Iterator[Store]:
    kept: dict[str, int] = {}
    positions: dict[str, int] = {}

    def step(name: str, at: int) -> None:
        kept[name] = at
        positions["orders"] = at

    def batch(values: list[tuple[str, int]], at: int) -> None:
        kept.update(values)
        positions["orders"] = at

    yield Store(kept.get, kept.__setitem__, step, batch, int)


@contextmanager
def database(directory: Path) -> Iterator[Store]:
    config = JobConfig(checkpoint=CheckpointConfig(interval=1.0))
    with tidelog.open(str(directory), {"n": ValueState(int)}, config=config) as db:

        def put(name: str, value: int) -> None:
            db.key(name).n.set(value)

        def step(name: str, at: int) -> None:
            db.key(name).n.set(at)
            db.advance("orders", at)

        def batch(values: list[tuple[str, int]], at: int) -> None:
            db.apply("n", values, partition="orders", position=at)

        yield Store(lambda name: db.key(name).n.get(), put, step, batch, db.checkpoint, True)


@contextmanager
def sqlite(directory: Path) -> Iterator[Store]:
    """The position is written once, in the transaction that makes its steps durable."""
    connection = sqlite3.connect(directory / "state.db", isolation_level=None)
    connection.execute("pragma journal_mode=wal")
    connection.execute("create table n (key text primary key, value integer) without rowid")
    connection.execute("begin")
    done = 0

    def get(name: str) -> Any:
        found = connection.execute("select value from n where key = ?", (name,)).fetchone()
        return None if found is None else found[0]

    def put(name: str, value: int) -> None:
        connection.execute("insert or replace into n values (?, ?)", (name, value))

    def step(name: str, at: int) -> None:
        nonlocal done
        connection.execute("insert or replace into n values (?, ?)", (name, at))
        done = at

    def batch(values: list[tuple[str, int]], at: int) -> None:
        nonlocal done
        connection.executemany("insert or replace into n values (?, ?)", values)
        done = at

    def commit() -> None:
        put("position of orders", done)
        connection.execute("commit")
        connection.execute("begin")

    yield Store(get, put, step, batch, commit)
    connection.close()


@contextmanager
def rocksdb(directory: Path) -> Iterator[Store]:
    """A step is a batch, as only a batch is in the log as a whole."""
    kept = Rdict(str(directory))

    def step(name: str, at: int) -> None:
        batch = WriteBatch()
        batch.put(name, at)
        batch.put("position of orders", at)
        kept.write(batch)

    def all_in_one(values: list[tuple[str, int]], at: int) -> None:
        batch = WriteBatch()
        for name, value in values:
            batch.put(name, value)
        batch.put("position of orders", at)
        kept.write(batch)

    yield Store(kept.get, kept.__setitem__, step, all_in_one, lambda: kept.flush_wal(sync=True))
    kept.close()


STORES = {"dict": plain_dict, "tidelog": database, "sqlite3": sqlite, "rocksdict": rocksdb}


def keys_of(count: int, steps: int) -> list[str]:
    """So many draws among so many keys, the same ones every time."""
    draw = random.Random(count).randrange
    return [f"user-{draw(count)}" for _ in range(steps)]


def stepped(store: Store, keys: Sequence[str]) -> None:
    """A step for each key, durable in the end."""
    step, due = store.step, time.perf_counter() + 1.0
    for at, key in enumerate(keys):
        step(key, at)
        if at % 256 == 0 and time.perf_counter() >= due:
            due += 1.0
            if not store.commits_itself:
                store.commit()
    store.commit()


def batches(store: Store, keys: Sequence[str]) -> None:
    """Steps in batches, durable in the end."""
    batch, due = store.batch, time.perf_counter() + 1.0
    for at in range(0, len(keys), BATCH):
        batch([(key, at + n) for n, key in enumerate(keys[at : at + BATCH])], at)
        if time.perf_counter() >= due:
            due += 1.0
            if not store.commits_itself:
                store.commit()
    store.commit()


def sets(store: Store, keys: Sequence[str]) -> None:
    """Set each key."""
    put = store.set
    for at, key in enumerate(keys):
        put(key, at)


def gets(store: Store, keys: Sequence[str]) -> None:
    """Get each key."""
    get = store.get
    for key in keys:
        get(key)


def durable(store: Store, keys: Sequence[str]) -> None:
    """Set each key, all of them durable in the end."""
    sets(store, keys)
    store.commit()


Work = Callable[[Store, Sequence[str]], None]


def works() -> dict[str, tuple[Work, list[str]]]:
    """What is timed, in this order: the first one fills the store."""
    few = keys_of(FEW, STEPS)
    return {
        f"step, {MANY} keys": (stepped, keys_of(MANY, STEPS)),
        f"step, {MANY} keys, {BATCH} at once": (batches, keys_of(MANY, STEPS)),
        f"step, {FEW} keys": (stepped, few),
        "set": (sets, few[: STEPS // 10]),
        "get": (gets, few[: STEPS // 10]),
        f"{DURABLE} sets made durable, each": (durable, few[:DURABLE]),
    }


def measured(pairs: int) -> dict[str, dict[str, list[tuple[float, float]]]]:
    """Microseconds of wall and of processor time of a call, by work and store, one per pair."""
    todo = works()
    found: dict[str, dict[str, list[tuple[float, float]]]] = {
        what: {name: [] for name in STORES} for what in todo
    }
    for pair in range(pairs):
        for name in list(STORES)[:: -1 if pair % 2 else 1]:
            with tempfile.TemporaryDirectory() as directory, STORES[name](Path(directory)) as store:
                for what, (work, keys) in todo.items():
                    wall, cpu = time.perf_counter(), time.process_time()
                    work(store, keys)
                    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
                    found[what][name].append((wall / len(keys) * 1e6, cpu / len(keys) * 1e6))
    return found


def spread(values: Sequence[float]) -> dict[str, float]:
    """The least, the median and the most."""
    return {
        name: round(of(values), 3) for name, of in (("min", min), ("median", median), ("max", max))
    }


def results(pairs: int) -> Iterator[dict[str, Any]]:
    """A line for each work and store."""
    for what, stores in measured(pairs).items():
        for name, runs in stores.items():
            wall, cpu = zip(*runs, strict=True)
            ours = (mine for mine, _ in stores["tidelog"])
            yield {
                "work": what,
                "store": name,
                "per_second": round(1e6 / median(wall)),
                "wall_us": spread(wall),
                "cpu_us": spread(cpu),
                "tidelog_takes": spread([mine / its for mine, its in zip(ours, wall, strict=True)]),
                "runs": [[round(value, 3) for value in run] for run in runs],
            }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print a line of JSON for each figure")
    arguments = parser.parse_args()
    about = {"experiment": "own_loop_steps", **environment.here()}
    for result in results(arguments.pairs):
        if arguments.json:
            print(json.dumps({**about, **result}))
            continue
        wall, takes = result["wall_us"], result["tidelog_takes"]
        print(
            f"{result['work']:34} {result['store']:10} {result['per_second']:>10,}/s"
            f"  {wall['min']:.2f} / {wall['median']:.2f} / {wall['max']:.2f} us"
            f"  tidelog takes {takes['min']:.2f} / {takes['median']:.2f} / {takes['max']:.2f} of it"
        )


if __name__ == "__main__":
    main()
