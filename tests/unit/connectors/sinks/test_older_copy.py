"""A target that was brought back from an older copy, while nothing new is to be written to it."""

import asyncio
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.clock import VirtualClock, in_virtual_time
from tests.support.iceberg import Lake
from tests.support.pipelines import config
from tests.support.postgres import query
from tidelog import Iceberg, Job, JobRunner, Postgres, PushSource, Sink, Sqlite
from tidelog.errors import ObjectNotFoundError
from tidelog.storage.memory import MemoryStore


class Numbers(PushSource):
    """A number a second, up to a limit, and then nothing, for ever."""

    def __init__(self, clock: VirtualClock, limit: int) -> None:
        self._clock = clock
        self._limit = limit

    def discover(self) -> list[str]:
        return ["all"]

    async def push(self, split: str, position: Any, emitter: Any) -> None:
        for number in range(position or 0, self._limit):
            await emitter.emit([(number,)], number + 1)
            await self._clock.sleep(1.1)
        await self._clock.sleep(1e9)


class Target(NamedTuple):
    sink: Callable[[], Sink]
    copy: Callable[[], object]
    bring_back: Callable[[], object]


def target(kind: str, directory: Path, request: pytest.FixtureRequest) -> Target:
    if kind == "postgres":
        current = [request.getfixturevalue("conninfo")]
        name = dict(part.split("=", 1) for part in current[0].split())["dbname"]
        server = current[0].replace(f"dbname={name}", "dbname=postgres")

        def bring_back() -> None:
            current[0] = current[0].replace(f"dbname={name}", f"dbname={name}_old")

        return Target(
            lambda: Postgres(current[0], "numbers", {"n": "bigint"}),
            lambda: query(server, f"CREATE DATABASE {name}_old TEMPLATE {name}"),
            bring_back,
        )
    lake = Lake(directory)
    if kind == "iceberg":
        lake.create("lake.numbers", n="long")
    file = directory / ("catalogue.db" if kind == "iceberg" else "numbers.db")
    old = directory / "old.db"
    return Target(
        lambda: (
            Iceberg(lake.catalog, "lake.numbers")
            if kind == "iceberg"
            else Sqlite(file, "numbers", {"n": "integer"})
        ),
        lambda: shutil.copy(file, old),
        lambda: shutil.copy(old, file),
    )


async def start(store: MemoryStore, sink: Sink, limit: int) -> None:
    """Run for ten seconds, the last of which are idle."""
    clock = VirtualClock()
    job = Job("numbers")
    job.source(Numbers(clock, limit)).sink(sink)
    effects = in_virtual_time(limit, clock)
    runner = JobRunner(job, store, config(parallelism=1, retain=30), effects)
    up = asyncio.Event()
    running = asyncio.ensure_future(runner.run(up.set))
    begun = asyncio.ensure_future(up.wait())
    await asyncio.wait([running, begun], return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        begun.cancel()
        running.result()
    await clock.sleep(10)
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "iceberg"])
async def test_an_older_copy_of_the_output_is_an_error_that_says_what_is_missing(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    store, there = MemoryStore(), target(kind, tmp_path, request)
    await start(store, there.sink(), 3)
    await start(store, there.sink(), 3)  # a start without anything new
    there.copy()
    await start(store, there.sink(), 6)
    await start(store, there.sink(), 6)
    there.bring_back()
    message = r"output of sink .*nothing of \d+ transactions, of the checkpoints .*tidelog fork"
    with pytest.raises(ObjectNotFoundError, match=message):
        await start(store, there.sink(), 6)
