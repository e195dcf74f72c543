"""A sink with other subtasks than before commits what is owed once and leaves nothing open."""

import json
import sqlite3
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.property.test_rescaled_jobs import Breaking
from tests.support.pipelines import config, run
from tests.unit.connectors.sinks.job import context
from tidelog.connectors.files.sink import Files
from tidelog.connectors.sql import Sqlite
from tidelog.errors import UserFunctionError
from tidelog.ids import CheckpointId
from tidelog.runtime.graph import Job
from tidelog.runtime.sink import Sink, SinkContext
from tidelog.storage.memory import MemoryStore

COLUMNS = {"key": "TEXT", "split": "TEXT", "n": "INTEGER"}


def rescaled(sink: Callable[[], Sink], shapes: list[int]) -> list[Any]:
    """Run a copy of all records in these shapes, broken off in all but the last."""
    source, store = Breaking(3, "a"), MemoryStore()
    for number, parallelism in enumerate(shapes):
        last = number == len(shapes) - 1
        source.left = None if last else 6
        job = Job("copied")
        job.source(source).rebalance().sink(sink())
        try:
            run(job, store, config(parallelism=parallelism), seed=number)
        except UserFunctionError:
            assert not last
    return source.records


@pytest.mark.parametrize("shapes", [[2, 5, 3], [7, 2, 1], [1, 4]], ids=str)
def test_files_hold_every_record_once_and_none_stays_hidden(
    tmp_path: Path, shapes: list[int]
) -> None:
    expected = rescaled(lambda: Files(tmp_path / "out"), shapes)
    lines = [
        tuple(json.loads(line))
        for part in (tmp_path / "out").glob("part-*")
        for line in part.read_text().splitlines()
    ]
    assert Counter(lines) == Counter(expected)
    assert list((tmp_path / "out" / ".tidelog").glob("*")) == []


@pytest.mark.parametrize("shapes", [[2, 5, 3], [7, 2, 1], [1, 4]], ids=str)
def test_an_sqlite_table_holds_every_record_once_and_staging_is_empty(
    tmp_path: Path, shapes: list[int]
) -> None:
    database = tmp_path / "out.db"
    expected = rescaled(lambda: Sqlite(database, "records", COLUMNS), shapes)
    with sqlite3.connect(database) as connection:
        rows = connection.execute("SELECT key, split, n FROM records").fetchall()
        left = connection.execute("SELECT count(*) FROM _tidelog_pending").fetchone()
    assert Counter(rows) == Counter(expected)
    assert left == (0,)


def of_four(subtask: int, generation: int = 1) -> SinkContext:
    return context(generation, subtask)


@pytest.mark.parametrize("kind", ["files", "sqlite"])
def test_what_a_subtask_left_that_is_no_more_is_committed_or_removed_by_its_successor(
    tmp_path: Path, kind: str
) -> None:
    """Subtask 3 of 4 has one transaction in the checkpoint and one that is not; 1 of 2 follows."""
    sink = {
        "files": lambda: Files(tmp_path / "out"),
        "sqlite": lambda: Sqlite(tmp_path / "out.db", "records", {"n": "INTEGER"}),
    }[kind]
    writer = sink().open(of_four(3))
    tokens = []
    for number in (1, 2):
        writer.write([(number,)])
        tokens.append(writer.pre_commit(CheckpointId(number)))
    for subtask in (0, 1):
        heir = SinkContext("job", "sink", subtask, 2, of_four(0, 2).generation, "b")
        owed = [token for token in tokens[:1] if token is not None and heir.answers_for(3)]
        sink().open(heir).recover(owed)
        if subtask == 0:
            assert shown(tmp_path, kind) == ([], 2), "not its business"
    assert shown(tmp_path, kind) == ([1], 0)


def shown(tmp_path: Path, kind: str) -> tuple[list[int], int]:
    """What readers see, and the number of transactions left open."""
    if kind == "files":
        parts = sorted((tmp_path / "out").glob("part-*"))
        lines = [line for part in parts for line in part.read_text().splitlines()]
        return [json.loads(line)[0] for line in lines], len(
            list((tmp_path / "out" / ".tidelog").glob("*"))
        )
    with sqlite3.connect(tmp_path / "out.db") as connection:
        rows = connection.execute("SELECT n FROM records").fetchall()
        (left,) = connection.execute("SELECT count(*) FROM _tidelog_pending").fetchone()
    return [n for (n,) in rows], left
