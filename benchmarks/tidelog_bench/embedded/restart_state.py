"""The state of a restart: a table of any size with a log after it, made once and kept in the cache.

Invariants: a row's value follows from its number alone, so a job sees whether it read the right
one; a state appears whole, or not at all. The rows go to the table of a running job in files, as a
restore loads them: through the job each would take eight microseconds.
"""

import asyncio
import hashlib
import itertools
import random
import shutil
from array import array
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, Literal

from tidelog.checkpoint.config import CheckpointConfig
from tidelog.effects import Effects, cache_directory
from tidelog.ids import SubtaskId
from tidelog.library.database import Database
from tidelog.library.event_loop import EventLoop
from tidelog.library.state_job import StateJob
from tidelog.library.states import ValueState
from tidelog.library.steps import Steps
from tidelog.materialize.schedule import MaterializeConfig
from tidelog.runtime.config import DEFAULT_KEY_GROUPS, JobConfig
from tidelog.runtime.graph import Job
from tidelog.runtime.runner import JobRunner
from tidelog.runtime.sink import Sink
from tidelog.state.key_groups import encode_key, key_group
from tidelog.storage.local import LocalStore
from tidelog.storage.port import ObjectStore
from tidelog.table.port import Table
from tidelog_bench.embedded.jobs import ListSource, NullSink
from tidelog_bench.embedded.meter import CLOCK
from tidelog_bench.embedded.restore import log_after_table
from tidelog_bench.embedded.run import meanwhile, until

BUFFER: Final = 512
"""Records that the source gives together."""
Keys = Literal["uniform", "zipf"]
Record = tuple[str, int]
"""A key, and the number of its row."""
_ROW_BYTES: Final = 100
"""What a row takes in files: its value cannot be compressed, its key nearly all."""
_VALUE_BYTES: Final = 76
_NOISE: Final = random.Random(3).randbytes(1 << 20)
_ABSENT: Final = b""
_ZIPF: Final = 0.99
_LOADED_ROWS: Final = 1 << 17
"""Rows that go to the table as files, and ..."""
_WRITTEN_ROWS: Final = 1 << 14
"""... in a batch."""
_UPDATED: Final = 1 / 13
"""Share of the rows that are written again, so that the files are of several levels."""
_OPERATOR: Final = "rows"
_STATE: Final = {_OPERATOR: ValueState(bytes)}
_NEVER_S: Final = 1e6
_RARELY_S: Final = 30.0
_CHECKPOINT_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class StateSize:
    """What is restored."""

    state_gb: float
    log_changes: int
    """Changes after the table."""
    use: Literal["job", "program"] = "job"
    """Who has the state: a job, or a program with a loop of its own."""

    @property
    def rows(self) -> int:
        return int(self.state_gb * 1e9 / _ROW_BYTES)

    @property
    def name(self) -> str:
        return f"{self.use}-{self.state_gb:g}-gb-{self.log_changes}"

    def directory(self) -> Path:
        """The store of such a state, in the cache of the user; made by the first call."""
        code = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]
        states, name = cache_directory() / "bench-restart", self.name
        directory = states / f"{name}-{code}"
        if not directory.exists():
            # Those of earlier code, and one whose making was interrupted.
            for old in states.glob(f"{name}-*"):
                shutil.rmtree(old, ignore_errors=True)
            room = states / f"{name}-making"
            room.mkdir(parents=True)
            made_by = {"job": _make, "program": _make_by_program}
            made_by[self.use](self, room)
            (room / "store").rename(directory)
            shutil.rmtree(room)
        return directory


def key_of(number: int) -> str:
    return f"u{number:015}"


def value_of(number: int) -> bytes:
    start = number * 131 % (len(_NOISE) - _VALUE_BYTES)
    return _NOISE[start : start + _VALUE_BYTES]


def numbers(keys: Keys, rows: int, seed: str) -> Iterator[int]:
    """Numbers of rows without end: uniform, or Zipf's distribution with an exponent of 0.99 whose
    ranks are spread over all rows.
    """
    draw = random.Random(seed).random
    if keys == "uniform":
        while True:
            yield int(draw() * rows)
    factor, power = rows ** (1 - _ZIPF) - 1, 1 / (1 - _ZIPF)
    while True:
        yield int((1 + draw() * factor) ** power) * 7919 % rows


def records(
    drawn: Iterator[int], limit: int | None = None, rate: float | None = None
) -> Callable[[int], list[Record]]:
    """What a source reads: records of such rows, at most so many in all, and then none; with a rate
    as many as became due since it was read first.
    """
    left = drawn if limit is None else itertools.islice(drawn, limit)
    began, count = 0.0, 0

    def read(position: int) -> list[Record]:
        nonlocal began, count
        size = BUFFER
        if rate is not None:
            began = began or CLOCK.monotonic()
            size = min(BUFFER, int((CLOCK.monotonic() - began) * rate) - count)
            count += size
        return [(key_of(number), number) for number in itertools.islice(left, size)]

    return read


def rewrite(read: Callable[[int], list[Record]], sink: Sink) -> Job:
    """Look up the row of each record, see that it is the right one, and write it again."""
    job = Job("restart")
    keyed = job.source(ListSource(read)).key_by(lambda record: record[0])
    rows = keyed.aggregate(
        lambda record: _ABSENT, lambda value, _: value, name=_OPERATOR, emit_updates=True
    )
    rows.map_batches(_checked).sink(sink)
    return job


def _checked(rows: list[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
    for key, value in rows:
        check_row(int(key[1:]), value)
    return rows


def check_row(number: int, value: bytes | None) -> None:
    """Raise ValueError for a row that was absent, or is another."""
    if value != value_of(number):
        raise ValueError(f"the row of {key_of(number)} is {value!r}")


def _make(size: StateSize, room: Path) -> None:
    """Leave the store of such a state in a directory."""
    asyncio.run(_run(rewrite(records(iter(())), NullSink()), room, partial(_fill, rows=size.rows)))
    logged = records(numbers("uniform", size.rows, "logged"), size.log_changes)
    asyncio.run(_run(rewrite(logged, NullSink()), room, partial(_read, count=size.log_changes)))
    # The positions of the source are changes, too.
    assert asyncio.run(log_after_table(room / "store")) >= size.log_changes // 2


async def _run(job: Job, room: Path, work: Callable[[JobRunner], Awaitable[None]]) -> None:
    """Run a job that never materializes on the store of a directory, until `work` is done and in a
    checkpoint.
    """
    effects = Effects()
    store = LocalStore(room / "store", effects)
    config = JobConfig(
        work_dir=room / "work",
        checkpoint=CheckpointConfig(interval=_CHECKPOINT_S, idle_interval=0.0),
        materialize=MaterializeConfig(interval=_NEVER_S, replay_target=_NEVER_S),
    )
    runner = JobRunner(job, store, config, effects)
    with closing(effects.offload):
        async with meanwhile(runner.run()):
            await until(lambda: runner.running)
            await work(runner)
            assert runner.incarnation is not None
            metrics = runner.incarnation.driver.metrics
            # One may have begun before the last record; the one after it has them all.
            complete = metrics.completed + 2
            await until(lambda: metrics.completed >= complete)


async def _read(runner: JobRunner, count: int) -> None:
    """Wait until so many records are read."""
    assert runner.incarnation is not None
    (source,) = [task for task in runner.incarnation.tasks if task.is_source]
    await until(lambda: source.records_in >= count)


async def _fill(runner: JobRunner, rows: int) -> None:
    """Put all rows into the table of the job, and upload it."""
    assert runner.incarnation is not None
    subtask = runner.incarnation.states.subtasks[SubtaskId(_OPERATOR, 0)]
    (info,) = subtask.backend.registry.infos()
    await runner.effects.offload.run(_load, subtask.backend.table, info.id, rows)
    assert subtask.materializer is not None
    await subtask.materializer.materialize()


def _load(table: Table, state: int, rows: int) -> None:
    """Put all rows into a table: in the order of their keys, and then some again at random."""
    for chunk in _chunks(_in_order(rows), _LOADED_ROWS):
        table.load(*_columns(chunk, state))
    for chunk in _chunks(_again(rows), _WRITTEN_ROWS):
        table.write(*_columns(chunk, state))


def _in_order(rows: int) -> Iterator[int]:
    """The numbers of all rows, in the order of their keys in a table."""
    groups = [array("I") for _ in range(DEFAULT_KEY_GROUPS)]
    for number in range(rows):
        groups[_group(number)].append(number)
    return itertools.chain.from_iterable(groups)


def _again(rows: int) -> Iterator[int]:
    return itertools.islice(numbers("uniform", rows, "written again"), int(rows * _UPDATED))


def opened(store: ObjectStore, config: JobConfig, event_loop: EventLoop) -> Database:
    """What `tidelog.open` returns, on any store."""
    job = StateJob(store, _STATE, "database", config, event_loop, Steps)
    event_loop.ask(job.start())
    return Database(job, event_loop.close)


def _make_by_program(size: StateSize, room: Path) -> None:
    """Leave the store of such a state of a program."""
    rarely = CheckpointConfig(interval=_RARELY_S)
    filling = JobConfig(work_dir=room / "work", changelog=False, checkpoint=rarely)
    logging = replace(
        filling,
        changelog=True,
        materialize=MaterializeConfig(interval=_NEVER_S, replay_target=_NEVER_S),
    )
    logged = itertools.islice(numbers("uniform", size.rows, "logged"), size.log_changes)
    rows = itertools.chain(_in_order(size.rows), _again(size.rows))
    for config, written in ((filling, rows), (logging, logged)):
        event_loop = EventLoop()
        store = LocalStore(room / "store", event_loop.effects)
        with opened(store, config, event_loop) as database:
            for chunk in _chunks(written, _WRITTEN_ROWS):
                values = [(key_of(number), value_of(number)) for number in chunk]
                database.apply(_OPERATOR, values, partition="made", position=chunk[-1])
            database.checkpoint()


def _chunks(drawn: Iterable[int], size: int) -> Iterator[list[int]]:
    left = iter(drawn)
    while chunk := list(itertools.islice(left, size)):
        yield chunk


def _group(number: int) -> int:
    return key_group(encode_key(key_of(number)), DEFAULT_KEY_GROUPS)


def _columns(chunk: Iterable[int], state: int) -> tuple[list[bytes], list[bytes]]:
    """Sorted row keys and the values, as the table has them."""
    rows: dict[bytes, bytes] = {}
    for number in chunk:
        group, key = _group(number).to_bytes(2, "big"), encode_key(key_of(number))
        rows[group + state.to_bytes(2, "big") + key] = encode_key(value_of(number))
    keys = sorted(rows)
    return keys, [rows[key] for key in keys]
