"""Jobs that start from a savepoint: claimed or not, in their own store or another, by values."""

import asyncio
import json
import sqlite3
from collections import Counter
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.depth import one_by_one
from tests.support.faults import Failure, Fault, SteerableStore
from tests.support.pipelines import Outside, acted_on, config, effects, word_count, words
from tests.support.pressure import checkpoints
from tidelog.catalog.audit import audit
from tidelog.catalog.inventory import read_inventory
from tidelog.checkpoint.config import CheckpointConfig
from tidelog.checkpoint.manifest import Checkpoint, Savepoint, SavepointFormat, is_canonical
from tidelog.connectors.files.sink import FileSink
from tidelog.connectors.sql import SqliteSink
from tidelog.errors import ConfigError, ObjectNotFoundError, SavepointFailedError
from tidelog.runtime.graph import Job
from tidelog.runtime.restore.choose import RestoreFrom
from tidelog.runtime.runner import JobResult, JobRunner
from tidelog.runtime.sink import Sink
from tidelog.state.schema.row import Row
from tidelog.storage.memory import MemoryStore
from tidelog.storage.port import ObjectStore

pytestmark = pytest.mark.usefixtures("workers")

FORMATS: list[SavepointFormat] = ["native", "canonical"]
RARELY = config(checkpoint=CheckpointConfig(interval=7.0))
"""Checkpoints so far apart that a savepoint between them has output to commit."""


SOURCE = words(length=40)
COUNTS = Counter(SOURCE.records)
counting = partial(word_count, SOURCE)


def start(
    store: ObjectStore, job: Job, chosen: RestoreFrom | None = None, **settings: Any
) -> JobResult:
    runner = JobRunner(job, store, config(**settings), effects(), restore_from=chosen)
    return asyncio.run(runner.run())


def stopped(store: ObjectStore, format: SavepointFormat, sink: Outside, **settings: Any) -> None:
    """A job that was stopped half way with the savepoint `halt`."""
    stop = lambda runner: runner.stop("halt", format)  # noqa: E731
    acted_on(counting(sink), store, stop, settings=config(**settings))


def objects(store: ObjectStore, checkpoint: Checkpoint) -> set[str]:
    inventory = asyncio.run(read_inventory(store))
    return {need.name for need in inventory.needs(checkpoint)}


@one_by_one(
    format=FORMATS,
    before=["memory", "rocksdb"],
    after=["memory", "rocksdb"],
    changelog=[(True, False), (False, True), (True, True)],
)
def test_a_savepoint_starts_a_job_on_another_store_whatever_table_and_log_it_has(
    format: SavepointFormat, before: str, after: str, changelog: tuple[bool, bool]
) -> None:
    old, new, sink = MemoryStore("memory://old"), MemoryStore("memory://new"), Outside()
    stopped(old, format, sink, table=before, changelog=changelog[0])
    kept = dict(old._objects)
    settings = {"table": after, "changelog": changelog[1], "parallelism": 2}
    result = start(new, counting(sink), RestoreFrom("halt", old), **settings)
    assert result.restored_checkpoint == checkpoints(old)[-1].slot
    assert dict(sink.records) == COUNTS
    assert max(sink.commits.values()) == 1
    assert old._objects == kept, "the other store is only read"
    assert not asyncio.run(audit(new, deep=True)).problems, "the new one needs nothing else"


def test_the_same_command_started_again_resumes_from_its_own_store() -> None:
    old, new, sink = MemoryStore("memory://old"), MemoryStore("memory://new"), Outside()
    stopped(old, "native", sink)
    chosen = RestoreFrom("halt", old)
    acted_on(counting(sink), new, at=3.0, crash=True, restore_from=chosen)
    own = checkpoints(new)
    assert own, "it had completed a checkpoint"
    result = start(new, counting(sink), chosen)
    assert result.restored_checkpoint == own[-1].slot
    assert dict(sink.records) == COUNTS


@pytest.mark.parametrize("format", FORMATS)
def test_with_a_claim_the_savepoint_goes_like_any_checkpoint(format: SavepointFormat) -> None:
    store, sink = MemoryStore(), Outside()
    stopped(store, format, sink)
    savepoint = checkpoints(store)[-1]
    theirs = objects(store, savepoint)
    start(store, counting(sink), RestoreFrom("halt", claim=True))
    assert dict(sink.records) == COUNTS
    kept = checkpoints(store)
    assert savepoint not in kept
    needed = {name for entry in kept for name in objects(store, entry)}
    assert not (theirs - needed) & store._objects.keys(), "what nobody needs went with it"


def test_a_claim_to_another_store_is_refused() -> None:
    with pytest.raises(ConfigError, match="in the job's own store"):
        RestoreFrom("halt", MemoryStore(), claim=True)


def test_a_name_that_no_savepoint_has_is_refused_before_anything_is_written() -> None:
    store, sink = MemoryStore(), Outside()
    stopped(store, "native", sink)
    before = dict(store._objects)
    with pytest.raises(ObjectNotFoundError, match="savepoint halt; found none"):
        start(store, counting(sink), RestoreFrom("none"))
    assert store._objects == before


def _calls(format: SavepointFormat, changelog: bool) -> list[tuple[str, str]]:
    """What a savepoint asks of the store, found by taking one."""
    store = SteerableStore(MemoryStore())
    found: list[tuple[str, str]] = []

    async def probe(runner: JobRunner) -> None:
        before = len(store.calls)
        await runner.savepoint("probe", format)
        found.extend(store.calls[before:])

    acted_on(counting(Outside()), store, probe, settings=config(changelog=changelog))
    return found


@one_by_one(format=FORMATS, changelog=[True, False], after=[False, True], stop=[False, True])
def test_a_savepoint_survives_the_failure_of_any_of_its_calls_or_fails_and_another_works(
    format: SavepointFormat, changelog: bool, after: bool, stop: bool
) -> None:
    calls = [(op, name) for op, name in _calls(format, changelog) if op in ("put", "create")]
    assert calls
    kinds = Counter((op, name.partition("/")[0]) for op, name in calls)
    for (operation, prefix), count in kinds.items():
        for nth in range(1, count + 1):
            _one_failure(format, changelog, stop, Failure(operation, prefix, after=after, nth=nth))


def _one_failure(format: SavepointFormat, changelog: bool, stop: bool, failure: Fault) -> None:
    store, sink = SteerableStore(MemoryStore()), Outside()

    async def take(runner: JobRunner) -> Savepoint:
        store.fail(failure)
        try:
            taken = await (runner.stop if stop else runner.savepoint)("first", format)
        except SavepointFailedError as error:
            assert "injected failure" in str(error)
            store.fail()
            await runner.effects.clock.sleep(2.0)
            taken = await (runner.stop if stop else runner.savepoint)("second", format)
        store.fail()
        return taken

    _, taken = acted_on(counting(sink), store, take, settings=config(changelog=changelog))
    assert taken in checkpoints(store.inner)
    assert is_canonical(taken) == (format == "canonical")
    if stop:
        start(store.inner, counting(sink), changelog=changelog)
    assert dict(sink.records) == COUNTS, failure
    assert not asyncio.run(audit(store.inner, deep=True)).problems
    left, other = MemoryStore("memory://left"), Outside()
    start(left, counting(other), RestoreFrom(taken.name, store.inner), changelog=changelog)
    assert all(COUNTS[word] >= count for word, count in other.records)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("kind", ["files", "sqlite", "outside"])
def test_into_another_store_a_job_writes_what_comes_behind_into_an_output_of_its_own(
    format: SavepointFormat, kind: str, tmp_path: Path
) -> None:
    """The other job's output, complete by itself, is never touched or asked for."""
    old, new = MemoryStore("memory://old"), MemoryStore("memory://new")
    first, second = _Output(kind, tmp_path / "first"), _Output(kind, tmp_path / "second")
    halfway = lambda runner: runner.savepoint("halfway", format)  # noqa: E731
    acted_on(_passing(first.sink), old, halfway, settings=RARELY)
    start(new, _passing(second.sink), RestoreFrom("halfway", old))
    savepoint = next(e for e in checkpoints(old) if isinstance(e, Savepoint))
    assert any(state.transactions for _, state in savepoint.subtasks())
    assert first.read() == COUNTS
    behind = second.read()
    assert behind and behind < COUNTS
    assert not asyncio.run(audit(new, deep=True)).problems


@pytest.mark.parametrize("keep", [True, False])
def test_output_of_a_job_that_was_killed_is_committed_when_it_is_kept(keep: bool) -> None:
    old, new = MemoryStore("memory://old"), MemoryStore("memory://new")
    sink, own = Outside(), Outside()
    halfway = lambda runner: runner.savepoint("halfway")  # noqa: E731
    acted_on(_passing(sink), old, halfway, settings=RARELY, crash=True)
    newest = checkpoints(old)[-1]
    # As if the process had gone between the savepoint and its commits.
    uncommitted = [
        msgspec.msgpack.decode(t)[1] for _, s in newest.subtasks() for t in s.transactions
    ]
    assert uncommitted
    for token in uncommitted:
        sink.prepared[token] = sink.committed.pop(token)
    chosen = RestoreFrom("halfway", old, keep_output=keep)
    start(new, _passing(sink if keep else own), chosen)
    assert (Counter(row.word for row in sink.records) == COUNTS) == keep
    assert bool(sink.prepared) != keep


def _passing(sink: Sink) -> Job:
    """Writes every word as it comes."""
    job = Job("passing")
    job.source(SOURCE).map(lambda w: Row(word=w)).key_by(lambda r: r.word).sink(sink)
    return job


class _Output:
    """An output of some kind, read back as counts of words."""

    def __init__(self, kind: str, place: Path) -> None:
        self.place = place
        self.sink: Sink = Outside()
        if kind == "files":
            self.sink = FileSink(place)
        elif kind == "sqlite":
            self.sink = SqliteSink(place, "words", {"word": "text"})

    def read(self) -> Counter[str]:
        if isinstance(self.sink, Outside):
            return Counter(row.word for row in self.sink.records)
        if isinstance(self.sink, SqliteSink):
            with closing(sqlite3.connect(self.place)) as database:
                return Counter(word for (word,) in database.execute("select word from words"))
        lines = (line for part in self.place.glob("*.jsonl") for line in part.open())
        return Counter(json.loads(line)["word"] for line in lines)
