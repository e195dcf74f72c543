"""A job that moved to Spark: it is fenced and says where it is, and what was open is committed."""

import shutil
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from tests.support.pipelines import Outside, acted_on, config, copy, effects, run, word_count, words
from tidelog import ConfigError, Job, JobRunner, RestoreError, RestoreFrom, Savepoint, Sink
from tidelog.errors import UserFunctionError
from tidelog.runtime.sink import SinkContext, SinkWriter
from tidelog.spark.handover.begin import Beginning, Origin
from tidelog.spark.handover.document import QueryDirectory
from tidelog.spark.handover.takeover import resumed, take_over
from tidelog.storage.local import LocalStore

SOURCE = words(2, 200)


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store", effects())


def stop(job: Job, store: LocalStore, name: str = "halt", **options: Any) -> None:
    acted_on(job, store, lambda runner: runner.stop(name), **options)


def moved(job: Job, store: LocalStore, savepoint: str = "halt", query: str = "query") -> Beginning:
    root = Path(store.url.removeprefix("file://")).parent
    return take_over(job, Origin(f"{store.url}@{savepoint}", str(root / query)))


def test_a_start_of_a_moved_job_is_refused_and_names_the_query_and_the_ways_back(
    store: LocalStore, tmp_path: Path
) -> None:
    sink = Outside()
    job = word_count(SOURCE, sink)
    stop(job, store)
    moved(job, store)
    with pytest.raises(RestoreError) as refused:
        run(job, store)
    for text in (f"{tmp_path}/query", "tidelog spark savepoint", "--from @"):
        assert text in str(refused.value)
    before = len(sink.records)
    acted_on(job, store, restore_from=RestoreFrom("halt"))
    assert len(sink.records) > before
    run(job, store)  # the next start goes on from there by itself


def test_only_the_newest_savepoint_of_a_stop_is_moved(store: LocalStore) -> None:
    job = word_count(SOURCE, Outside())
    acted_on(job, store, lambda runner: runner.savepoint("copy"), crash=True)
    with pytest.raises(RestoreError, match="after which the job went on"):
        moved(job, store, "copy")
    stop(job, store)
    acted_on(job, store, crash=True)
    with pytest.raises(RestoreError, match="expected the newest entry of the store"):
        moved(job, store)
    stop(job, store, "again")
    assert moved(job, store, "again").savepoint is not None


class _Killed(Outside):
    """Commits nothing once it is `killed`, as a process that is."""

    killed = False

    def open(self, context: SinkContext) -> SinkWriter:
        writer = super().open(context)
        commit = writer.commit

        def commit_alive(transaction: bytes) -> None:
            if not self.killed:
                commit(transaction)

        writer.commit = commit_alive  # type: ignore[method-assign]
        return writer

    def stop(self, runner: JobRunner) -> Awaitable[Savepoint]:
        self.killed = True
        return runner.stop("halt")


def test_what_the_savepoint_had_pre_committed_is_committed_once(store: LocalStore) -> None:
    sink = _Killed()
    job = copy(SOURCE, sink)
    acted_on(job, store, sink.stop)
    prepared = [record for records in sink.prepared.values() for record in records]
    tokens, before = set(sink.prepared), len(sink.records)
    assert prepared
    sink.killed = False
    handover = moved(job, store)
    assert sink.records[before:] == prepared
    assert tokens <= set(handover.handover.transactions or ()), "outputs remember them"
    # An interrupted start of the query is repeated.
    assert moved(job, store).handover == handover.handover
    assert sink.records[before:] == prepared
    with pytest.raises(RestoreError, match="moved to the Spark checkpoint"):
        moved(job, store, query="another")


class _Broken(Outside):
    def open(self, context: SinkContext) -> SinkWriter:
        raise ValueError("no database")


def test_a_sink_that_fails_is_named_and_the_move_is_repeated_later(
    store: LocalStore, tmp_path: Path
) -> None:
    killed = _Killed()
    acted_on(copy(SOURCE, killed), store, killed.stop)
    sink: Sink = _Broken()
    with pytest.raises(UserFunctionError, match="sink"):
        moved(copy(SOURCE, sink), store)
    assert not (tmp_path / "query").exists()
    killed.killed = False
    moved(copy(SOURCE, killed), store)


def test_state_that_the_job_cannot_take_is_refused_before_anything_is_fenced(
    store: LocalStore, tmp_path: Path
) -> None:
    job = word_count(SOURCE, Outside())
    stop(job, store)
    other = Job("word-count")
    other.source(SOURCE).key_by(lambda w: w).count(name="renamed").sink(Outside())
    with pytest.raises(RestoreError, match="aggregate"):
        moved(other, store)
    acted_on(job, store)  # it starts


def test_a_query_that_has_not_begun_is_not_started_without_its_savepoint(
    store: LocalStore, tmp_path: Path
) -> None:
    query = tmp_path / "query"
    assert resumed(QueryDirectory(str(query))) is None
    job = word_count(SOURCE, Outside())
    stop(job, store)
    handover = moved(job, store).handover
    with pytest.raises(ConfigError, match="its first batch is not committed"):
        resumed(QueryDirectory(str(query)))
    (query / "commits").mkdir()
    (query / "commits/0").touch()
    later = resumed(QueryDirectory(str(query)))
    assert later is not None
    assert later.handover == handover
    assert later.savepoint is None
    shutil.rmtree(store.url.removeprefix("file://"))
    assert moved(job, store) == later


def test_a_job_that_has_ended_is_moved_with_its_state_before_the_end(store: LocalStore) -> None:
    sink = Outside()
    job = word_count(SOURCE, sink)
    run(job, store)
    savepoint = moved(job, store, "latest").savepoint
    assert savepoint is not None and savepoint.has_ended
    assert not savepoint.checkpoint.final
    rows = [row for batch in savepoint.batches("aggregate", "key") for row in batch.to_pylist()]
    assert len(rows) == len(dict(sink.records)), "a row for each word"
    with pytest.raises(RestoreError, match="moved to the Spark checkpoint"):
        run(job, store)


def test_a_job_that_is_complete_for_good_is_not_moved(store: LocalStore) -> None:
    job = word_count(SOURCE, Outside())
    run(job, store, config(finish_once=True))
    with pytest.raises(RestoreError, match=r"without the state before the end.*--finish-once"):
        moved(job, store, "latest")
    run(job, store, config(finish_once=True))
