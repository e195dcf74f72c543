"""A target that was brought back from an older copy, while nothing new is to be written to it."""

import asyncio
import shutil
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.clock import VirtualClock, in_virtual_time
from tests.support.fake_kafka import FakeKafka
from tests.support.iceberg import Lake
from tests.support.pipelines import config
from tests.support.postgres import query
from tests.unit.connectors.sinks.outputs import KINDS
from tidelog import (
    FileSink,
    IcebergSink,
    Job,
    JobRunner,
    KafkaSink,
    PostgresSink,
    PushSource,
    Sink,
    SqliteSink,
)
from tidelog.errors import ObjectNotFoundError
from tidelog.storage.memory import MemoryStore

MISSING = r"output of sink .*nothing of \d+ transactions, of the checkpoints .*tidelog clone"


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
            lambda: PostgresSink(current[0], "numbers", {"n": "bigint"}),
            lambda: query(server, f"CREATE DATABASE {name}_old TEMPLATE {name}"),
            bring_back,
        )
    if kind == "files":
        out, copied = directory / "out", directory / "copied"

        def copied_back() -> None:
            shutil.rmtree(out)
            shutil.copytree(copied, out)

        return Target(lambda: FileSink(out), lambda: shutil.copytree(out, copied), copied_back)
    if kind == "kafka":
        kafka: FakeKafka = request.getfixturevalue("fake_kafka")
        kafka.create("numbers")
        backup = FakeKafka()

        def copy(source: FakeKafka, target: FakeKafka) -> None:
            target.topics, target.owners = deepcopy((source.topics, source.owners))

        return Target(
            lambda: KafkaSink("numbers", bootstrap="kafka:9092"),
            lambda: copy(kafka, backup),
            lambda: copy(backup, kafka),
        )
    lake = Lake(directory)
    if kind == "iceberg":
        lake.create("lake.numbers", n="long")
    file = directory / ("catalogue.db" if kind == "iceberg" else "numbers.db")
    old = directory / "old.db"
    return Target(
        lambda: (
            IcebergSink(lake.catalog, "lake.numbers")
            if kind == "iceberg"
            else SqliteSink(file, "numbers", {"n": "integer"})
        ),
        lambda: shutil.copy(file, old),
        lambda: shutil.copy(old, file),
    )


async def start(
    store: MemoryStore, sink: Sink, limit: int, meanwhile: Callable[[], object] = lambda: None
) -> None:
    """Run numbers up to a limit into a sink."""

    def job(clock: VirtualClock) -> Job:
        job = Job("numbers")
        job.source(Numbers(clock, limit)).sink(sink)
        return job

    await run_for_ten_seconds(store, job, meanwhile)


async def run_for_ten_seconds(
    store: MemoryStore,
    job: Callable[[VirtualClock], Job],
    meanwhile: Callable[[], object] = lambda: None,
) -> None:
    """The last of which are idle; `meanwhile` is called after three."""
    clock = VirtualClock()
    effects = in_virtual_time(1, clock)
    runner = JobRunner(job(clock), store, config(parallelism=1, retain=30), effects)
    up = asyncio.Event()
    running = asyncio.ensure_future(runner.run(up.set))
    begun = asyncio.ensure_future(up.wait())
    await asyncio.wait([running, begun], return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        begun.cancel()
        running.result()
    await clock.sleep(3)
    meanwhile()
    await clock.sleep(7)
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


@pytest.mark.parametrize("kind", KINDS)
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
    with pytest.raises(ObjectNotFoundError, match=MISSING):
        await start(store, there.sink(), 6)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "postgres"])
async def test_a_copy_of_a_moment_between_two_commits_of_one_start_is_an_error(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    # PostgreSQL copies no database that is in use; SQLite has the same tables.
    store, there = MemoryStore(), target(kind, tmp_path, request)
    await start(store, there.sink(), 6, there.copy)
    there.bring_back()
    with pytest.raises(ObjectNotFoundError, match=MISSING):
        await start(store, there.sink(), 6)


async def test_files_may_be_moved_away_but_for_those_of_the_newest_checkpoint(
    tmp_path: Path,
) -> None:
    store = MemoryStore()
    for limit in (3, 6, 9):
        await start(store, FileSink(tmp_path), limit)
        for part in sorted(tmp_path.glob("part-*"))[:-1]:
            part.unlink()
    assert len(list(tmp_path.glob("part-*"))) == 1
    await start(store, FileSink(tmp_path), 9)


async def test_a_directory_to_which_an_older_release_wrote_is_gone_on_with(tmp_path: Path) -> None:
    """Which left no marks of its commits."""
    store = MemoryStore()
    await start(store, FileSink(tmp_path), 6)
    for mark in (tmp_path / ".tidelog").glob("*.committed"):
        mark.unlink()
    for limit in (6, 9, 9):
        await start(store, FileSink(tmp_path), limit)


async def test_of_two_outputs_the_idle_one_lacks_nothing(tmp_path: Path) -> None:
    def job(clock: VirtualClock) -> Job:
        job = Job("numbers")
        numbers = job.source(Numbers(clock, 6))
        numbers.sink(FileSink(tmp_path / "all"), name="all")
        numbers.filter(lambda row: row[0] < 3).sink(FileSink(tmp_path / "few"), name="few")
        return job

    store = MemoryStore()
    for _ in range(3):
        await run_for_ten_seconds(store, job)
