"""Lives of a program with its own loop beside plain dicts; a test starts it again when killed.

What a worker does in its step number n depends on the seed, the worker and n alone, and its
position is n: so whatever a checkpoint or a start finds, its positions say what has to be there.
"""

import asyncio
import os
import random
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

import tidelog
from tidelog import (
    AsyncDatabase,
    CheckpointConfig,
    Database,
    FlushConfig,
    JobConfig,
    ListState,
    MapState,
    MaterializeConfig,
    ValueState,
    View,
)
from tidelog.errors import ConfigError, TidelogError

STATES: dict[str, Any] = {"hot": ValueState(int), "value": ValueState(int), "list": ListState(int)}
STATES["map"] = MapState(int, int)
CONFIG = JobConfig(
    checkpoint=CheckpointConfig(interval=0.02),
    flush=FlushConfig(rows=40),
    materialize=MaterializeConfig(interval=0.2),
)
WORKERS = 3
KEYS = 12
STEPS = 120
ENDS = ("close", "leave", "fail", "kill", "kill")

Ended = (TidelogError, KeyError)


class Left(Exception):
    """What a program leaves its database with."""


class Model:
    """What one worker has done, in plain dicts."""

    def __init__(self, seed: str, worker: int, steps: int = 0) -> None:
        self.seed, self.worker, self.done = seed, worker, 0
        self.value: dict[Any, int] = {}
        self.list: dict[Any, list[int]] = {}
        self.map: dict[Any, dict[int, int]] = {}
        while self.done < steps:
            self.step(None)

    def step(self, db: Database | AsyncDatabase | None) -> None:
        """Do the next step here, and in a database."""
        rng = random.Random(f"{self.seed} {self.worker} {self.done}")
        for _ in range(rng.randrange(1, 9)):
            self._change(rng, None if db is None else db.key)
        self.done += 1

    def _change(self, rng: random.Random, states_of: Callable[[Any], Any] | None) -> None:
        key, number = (self.worker, rng.randrange(KEYS)), rng.randrange(1000)
        states = None if states_of is None else states_of(key)
        match rng.randrange(8):
            case 0 | 1:
                self.value[key] = number
                states and states.value.set(number)
            case 2:
                self.value.pop(key, None)
                states and states.value.delete()
            case 3 | 4:
                self.list.setdefault(key, []).append(number)
                states and states.list.append(number)
            case 5:
                self.list[key] = [number] * rng.randrange(1, 4)
                states and states.list.set(self.list[key])
            case 6:
                entries = self.map.setdefault(key, {})
                entries[self.done] = number
                states and states.map.set(self.done, number)
                for old in sorted(entries)[: max(0, len(entries) - 5)]:  # a window
                    del entries[old]
                    states and states.map.delete(old)
            case _:
                if rng.random() < 0.3:
                    self.map.pop(key, None)
                    states and states.map.clear()

    def check(self, rows: dict[str, list[tuple[Any, ...]]], of_key: Callable[[Any], Any]) -> None:
        """The rows of scans of this worker's keys, and what reads give, are what is here."""
        assert dict(rows["value"]) == self.value
        assert dict(rows["list"]) == self.list
        maps: dict[Any, dict[int, int]] = {}
        for key, entry, value in rows["map"]:
            maps.setdefault(key, {})[entry] = value
        assert maps == {key: entries for key, entries in self.map.items() if entries}
        for number in range(KEYS):
            key = (self.worker, number)
            states = of_key(key)
            assert states.value.get() == self.value.get(key)
            assert states.list.get() == self.list.get(key, [])
            assert dict(states.map.items()) == self.map.get(key, {})


def scans(db: Database | View, worker: int) -> dict[str, list[tuple[Any, ...]]]:
    names = ("value", "list", "map")
    return {name: list(db.scan(name, prefix=(worker,))) for name in names}


def check_all(db: Database | View, seed: str) -> None:
    """What is stored is what the positions say, of all workers."""
    positions = db.position or {}
    for worker in range(WORKERS):
        Model(seed, worker, positions.get(worker, 0)).check(scans(db, worker), db.key)


def look_at_newest(url: str, seed: str) -> None:
    with tidelog.open(url, checkpoint="latest") as view:
        check_all(view, seed)


def check_fork(db: Database | AsyncDatabase) -> None:
    """A child has no part in it, and waits for nothing."""
    child = os.fork()
    if not child:
        signal.alarm(30)
        try:
            db.key(1).value.get()
        except ConfigError:
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


def end(how: str) -> None:
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how != "close":
        raise Left(how)


class Life:
    """One life of the program, up to its end."""

    def __init__(self, url: str, seed: str, number: int) -> None:
        self.url, self.seed = url, seed
        self.rng = random.Random(f"{seed} life {number}")
        self.end = self.rng.choice(ENDS)
        self.ending = (self.rng.randrange(WORKERS), self.rng.randrange(10, STEPS))
        self.over = threading.Event()
        self.errors: list[BaseException] = []

    def threads(self) -> None:
        """An error of the loop leaves the database at once: others may wait for its step."""
        others: list[threading.Thread] = []
        try:
            with tidelog.open(self.url, STATES, config=CONFIG) as db:
                check_all(db, self.seed)
                models = [
                    Model(self.seed, n, (db.position or {}).get(n, 0)) for n in range(WORKERS)
                ]
                others += [
                    threading.Thread(target=self._guarded, args=(db, model)) for model in models[1:]
                ]
                for each in others:
                    each.start()
                self._work(db, models[0])
                for each in others:
                    each.join()
                for error in self.errors:
                    raise error
        finally:
            self.over.set()
            for each in others:
                each.join()
            for error in self.errors:
                if not is_expected(error):
                    raise error

    def _guarded(self, db: Database, model: Model) -> None:
        try:
            self._work(db, model)
        except BaseException as error:
            self.errors.append(error)
            self.over.set()

    def _work(self, db: Database, model: Model) -> None:
        """The first worker is the loop, which needs no blocks."""
        for number in range(STEPS):
            if self.over.is_set():
                return
            if model.worker == 0:
                model.step(db)
                self._end_within(model, number)
                db.advance(0, model.done)
            else:
                with db.step():
                    model.step(db)
                    db.key(("hot", model.worker, number)).hot.set(number)
                    db.advance(model.worker, model.done)
                    self._end_within(model, number)
            self._look(db, model, number)

    def _end_within(self, model: Model, number: int) -> None:
        if (model.worker, number) == self.ending and self.end == "fail":
            raise Left("fail")

    def _look(self, db: Database, model: Model, number: int) -> None:
        if number % 29 == 7 * model.worker:
            model.check(scans(db, model.worker), db.key)
        if number == 50 and model.worker == 1:
            look_at_newest(self.url, self.seed)
        if number == 30 and model.worker == 2:
            check_fork(db)
        if (model.worker, number) == self.ending:
            end(self.end)

    async def tasks(self) -> None:
        async with tidelog.open_async(self.url, STATES, config=CONFIG) as db:
            positions = db.position or {}
            models = [Model(self.seed, n, positions.get(n, 0)) for n in range(WORKERS)]
            async with asyncio.TaskGroup() as group:
                for model in models:
                    group.create_task(self._task(db, model))

    async def _task(self, db: AsyncDatabase, model: Model) -> None:
        for number in range(STEPS):
            async with db.step():
                model.step(db)
                await asyncio.sleep(0)
                db.advance(model.worker, model.done)
                self._end_within(model, number)
            if number % 29 == 7 * model.worker:
                names = ("value", "list", "map")
                prefix = (model.worker,)
                rows = {n: [row async for row in db.scan(n, prefix=prefix)] for n in names}
                model.check(rows, db.key)
            if number == 30 and model.worker == 2:
                check_fork(db)
            if (model.worker, number) == self.ending:
                end(self.end)
            await asyncio.sleep(0)


def is_expected(error: BaseException) -> bool:
    """Whether it is what a life ends with, or what that has brought about."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(is_expected, error.exceptions))
    return isinstance(error, Left) or "Left: fail" in str(error) or "was closed" in str(error)


def main(url: str, seed: str, first: str, lives: str) -> None:
    """Live one life after the other; say before each which one it is."""
    for number in range(int(first), int(lives)):
        print(number, flush=True)
        life = Life(url, seed, number)
        try:
            if life.rng.random() < 0.5:
                life.threads()
            else:
                asyncio.run(life.tasks())
        except BaseException as error:
            if not is_expected(error):
                raise
    look_at_newest(url, seed)


if __name__ == "__main__":
    main(*sys.argv[1:])
