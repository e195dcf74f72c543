"""A database answers before its state is here, and what it answers is right."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count

import pytest

from tests.support.early_starts import EARLY, SMALL_BLOCKS
from tests.unit.library.conftest import NEVER, opened
from tidelog import CheckpointConfig, FlushConfig, JobConfig, MaterializeConfig
from tidelog.effects import Offload
from tidelog.library.database import Database
from tidelog.state.recovery.partial_file import PartialFile
from tidelog.storage.port import ObjectStore

KEYS = 3_000
EARLY_CONFIG = JobConfig(
    checkpoint=CheckpointConfig(interval=1e6), restore=EARLY, rocksdb=SMALL_BLOCKS
)


@pytest.fixture
def released(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Set: whole files of tables arrive from now on."""
    released, fetch = threading.Event(), PartialFile.fetch_rest

    async def later(
        file: PartialFile, store: ObjectStore, offload: Offload, arrived: Callable[[int], None]
    ) -> None:
        while not released.is_set():
            await asyncio.sleep(0.01)
        await fetch(file, store, offload, arrived)

    monkeypatch.setattr(PartialFile, "fetch_rest", later)
    yield released
    released.set()


def value(number: int) -> int:
    return number * 7919


@pytest.fixture
def filled(url: str) -> str:
    """A store with many keys, most of them in a table."""
    config = JobConfig(
        checkpoint=CheckpointConfig(interval=0.05),
        materialize=MaterializeConfig(interval=0.1),
        rocksdb=SMALL_BLOCKS,
    )
    with opened(url, config) as db:
        for number in range(KEYS):
            db.key(number).total.set(value(number))
            db.key(number).names.append(f"name of {number}")
        db.checkpoint()
        wait_for_table(db)
        db.key(0).total.set(-1)
    return url


def wait_for_table(db: Database) -> None:
    job = db._job
    states = job._runner.states
    assert states is not None
    (subtask,) = states.subtasks.values()

    async def materialized() -> None:
        assert subtask.materializer is not None
        await subtask.materializer.materialize()

    job.event_loop.ask(materialized())


def test_values_lists_and_scans_are_right_before_the_state_is_here(
    filled: str, released: threading.Event
) -> None:
    with opened(filled, EARLY_CONFIG) as db:
        states = db._job._runner.states
        assert states is not None
        assert not states.progress.hydration.is_whole
        assert db.key(0).total.get() == -1
        for number in range(1, KEYS, 250):
            assert db.key(number).total.get() == value(number)
            assert db.key(number).names.get() == [f"name of {number}"]
        assert db.key(KEYS + 1).total.get() is None
        db.key(7).total.set(70)
        totals = dict(db.scan("total"))
        assert len(totals) == KEYS
        assert totals[7] == 70
        assert all(totals[number] == value(number) for number in range(8, KEYS))
        assert not states.progress.hydration.is_whole
    released.set()
    with opened(filled, NEVER) as db:
        assert db.key(7).total.get() == 70
        assert db.key(8).total.get() == value(8)


def test_steps_wait_while_what_they_wrote_cannot_be_compacted(
    filled: str,
    released: threading.Event,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("tidelog.table.hydrating.LEVEL0_GROWTH", 1)
    # What is written goes to the table soon, and does not stay in memory.
    config = replace(EARLY_CONFIG, flush=FlushConfig(rows=100, cache_bytes=0))
    written, may_end = [0], threading.Event()

    def write(db: Database) -> None:
        for number in count():
            with db.step():
                db.key(number).total.set(number + 1)
                written[0] = number
            if may_end.is_set():
                return

    with opened(filled, config) as db:
        writer = threading.Thread(target=write, args=[db])
        writer.start()
        wait_until(lambda: "takes no records until its table is whole" in caplog.text)
        # No step begins; reads and checkpoints go on.
        for _ in range(100):
            before = written[0]
            assert db.key(-1).total.get() is None
            db.checkpoint()
            if before == written[0]:
                break
        assert before == written[0]
        released.set()
        wait_until(lambda: written[0] > before)
        may_end.set()
        writer.join()
        db.checkpoint()
    with opened(filled, NEVER) as db:
        totals = dict(db.scan("total"))
        assert all(totals[number] == number + 1 for number in range(written[0] + 1))


def wait_until(reached: Callable[[], bool]) -> None:
    limit = time.monotonic() + 60
    while not reached():
        assert time.monotonic() < limit
        time.sleep(0.01)
