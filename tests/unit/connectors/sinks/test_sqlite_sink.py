"""The SQLite sink: what readers of a table see, whenever they look and whatever crashed."""

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Barrier
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.connectors.sinks.job import STEPS, SinkJob, context
from tidelog.connectors.sql import Sqlite
from tidelog.connectors.sql.staging import StagingWriter
from tidelog.errors import (
    ConfigError,
    CorruptObjectError,
    ObjectNotFoundError,
    RestoreError,
    StorageError,
    StoreFullError,
    UserFunctionError,
)
from tidelog.ids import CheckpointId
from tidelog.state.schema.row import Row

COLUMNS = {"word": "TEXT", "n": "INTEGER"}


def query(path: Path, sql: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute(sql).fetchall()
        connection.commit()
        return rows


def shown(path: Path) -> list[Any]:
    return query(path, "SELECT * FROM words ORDER BY rowid")


def staged(path: Path) -> int:
    return int(query(path, "SELECT count(*) FROM _tidelog_pending")[0][0])


def pre_committed(writer: StagingWriter, checkpoint: int = 1, *records: Any) -> bytes:
    writer.write(records or [("a", 1), ("b", 2)])
    transaction = writer.pre_commit(CheckpointId(checkpoint))
    assert transaction is not None
    return transaction


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "words.db"


@pytest.fixture
def sink(path: Path) -> Sqlite:
    return Sqlite(path, "words", COLUMNS)


@given(st.lists(st.sampled_from(STEPS), max_size=30))
def test_no_record_is_seen_twice_or_missing_whatever_crashes(steps: list[str]) -> None:
    with TemporaryDirectory() as directory:
        path = Path(directory, "numbers.db")
        job = SinkJob(
            lambda: Sqlite(path, "numbers", {"n": "INTEGER"}),
            lambda: [n for (n,) in query(path, "SELECT n FROM numbers ORDER BY rowid")],
        )
        job.run(steps)
        job.crash()
        job.check()
        assert staged(path) == 0


def test_rows_are_staged_before_they_are_seen(sink: Sqlite, path: Path) -> None:
    writer = sink.open(context())
    transaction = pre_committed(writer)
    assert (shown(path), staged(path)) == ([], 2)
    writer.commit(transaction)
    assert (shown(path), staged(path)) == ([("a", 1), ("b", 2)], 0)
    writer.close()


def test_an_empty_transaction_is_none(sink: Sqlite, path: Path) -> None:
    writer = sink.open(context())
    writer.write([])
    assert writer.pre_commit(CheckpointId(1)) is None
    writer.close()


def test_commit_is_idempotent(sink: Sqlite, path: Path) -> None:
    writer = sink.open(context())
    transaction = pre_committed(writer)
    for _ in range(2):
        writer.commit(transaction)
    writer.close()
    sink.open(context(generation=2)).recover([transaction, transaction])
    assert shown(path) == [("a", 1), ("b", 2)]


def test_recovery_removes_staged_rows_of_this_subtask_and_sink_only(
    sink: Sqlite, path: Path
) -> None:
    others = {
        sink.open(context(subtask=1)): ("b", 2),
        Sqlite(path, "other", COLUMNS).open(context()): ("c", 3),
    }
    transactions = {writer: pre_committed(writer, 1, record) for writer, record in others.items()}
    pre_committed(sink.open(context()))
    sink.open(context(generation=2)).recover([])
    assert staged(path) == 2
    for writer, transaction in transactions.items():
        writer.commit(transaction)
    assert (shown(path), query(path, "SELECT * FROM other")) == ([("b", 2)], [("c", 3)])


def test_any_subtask_can_commit_a_transaction(sink: Sqlite, path: Path) -> None:
    transaction = pre_committed(sink.open(context(subtask=3)))
    sink.open(context(generation=2, subtask=0)).recover([transaction])
    assert (shown(path), staged(path)) == ([("a", 1), ("b", 2)], 0)


@pytest.mark.parametrize("lost", ["1", "seq = 1"])
def test_a_lost_transaction_is_an_error_and_commits_nothing(
    lost: str, sink: Sqlite, path: Path
) -> None:
    writer = sink.open(context())
    transaction = pre_committed(writer)
    query(path, f"DELETE FROM _tidelog_pending WHERE {lost}")
    with pytest.raises(ObjectNotFoundError, match=r"transaction 1-a-1 of .*expected 2 rows"):
        writer.commit(transaction)
    assert shown(path) == []


def test_concurrent_subtasks_commit_all_their_rows(sink: Sqlite, path: Path) -> None:
    def work(subtask: int) -> None:
        writer = sink.open(context(subtask=subtask))
        writer.recover([])
        for checkpoint in range(5):
            records = [(f"{subtask}", checkpoint * 10 + n) for n in range(10)]
            writer.commit(pre_committed(writer, checkpoint, *records))
        writer.close()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert sorted(shown(path)) == [(f"{subtask}", n) for subtask in range(4) for n in range(50)]


def test_many_subtasks_create_one_database_at_once(tmp_path: Path) -> None:
    at_once = Barrier(8)

    def create(sink: Sqlite, subtask: int) -> None:
        at_once.wait()
        sink.open(context(subtask=subtask)).close()

    with ThreadPoolExecutor(8) as pool:
        for database in range(100):
            sink = Sqlite(tmp_path / f"{database}.db", "words", COLUMNS)
            list(pool.map(create, [sink] * 8, range(8)))


def test_a_reader_in_the_middle_of_a_query_does_not_block_a_commit(
    sink: Sqlite, path: Path
) -> None:
    writer = sink.open(context())
    writer.commit(pre_committed(writer))
    with closing(sqlite3.connect(path)) as reader:
        rows = reader.execute("SELECT * FROM words")
        assert rows.fetchone() == ("a", 1)
        writer.commit(pre_committed(writer, 2))
        assert rows.fetchall() == [("b", 2)]
    assert len(shown(path)) == 4


@pytest.mark.parametrize(
    "record",
    [
        ("tide", 1),
        ["tide", 1],
        Row("tide", 1),
        Row(word="tide", n=1),
        Row(n=1, word="tide"),
        {"n": 1, "word": "tide"},
    ],
)
def test_records_are_taken_by_name_or_position(record: Any, sink: Sqlite, path: Path) -> None:
    writer = sink.open(context())
    writer.commit(pre_committed(writer, 1, record))
    assert shown(path) == [("tide", 1)]


@pytest.mark.parametrize(
    "value", [None, 0, -(2**63), 2**63 - 1, 1.5, "", "\u2693\0", b"\x00\xff", True]
)
def test_values_come_out_as_they_went_in(value: Any, path: Path) -> None:
    writer = Sqlite(path, "words", {"value": "BLOB"}).open(context())
    writer.commit(pre_committed(writer, 1, (value,)))
    assert shown(path) == [(value,)]


@pytest.mark.parametrize(
    ("record", "found"),
    [
        (("a",), "1 values"),
        (("a", 1, 2), "3 values"),
        ({"word": "a"}, r"fields \('word',\)"),
        (Row(word="a", m=1), r"fields \('word', 'm'\)"),
        ("ab", "a str"),
        (("a", [1]), "a value of type list"),
        (("a", 2**63), "9223372036854775808, which has more than 64 bits"),
        (("\ud800", 1), ".*surrogates"),
    ],
)
def test_a_record_that_does_not_fit_is_an_error_at_once(
    record: Any, found: str, sink: Sqlite
) -> None:
    with pytest.raises(
        UserFunctionError, match=rf"table 'words'; .*\('word', 'n'\); found {found}"
    ):
        sink.open(context()).write([record])


def test_names_may_hold_any_character(path: Path) -> None:
    table, column = 'a "table"; DROP', 'sp ace"d'
    writer = Sqlite(path, table, {column: "varchar(20)"}).open(context())
    writer.commit(pre_committed(writer, 1, {column: "x"}))
    assert query(path, """SELECT * FROM "a ""table""; DROP" """) == [("x",)]


def test_a_table_with_these_columns_is_used_with_its_constraints(path: Path) -> None:
    query(path, "CREATE TABLE words (n integer PRIMARY KEY, word TEXT NOT NULL)")
    writer = Sqlite(path, "words", COLUMNS).open(context())
    writer.commit(pre_committed(writer, 1, ("a", 5)))
    assert shown(path) == [(5, "a")]
    transaction = pre_committed(writer, 2, ("b", 6), ("c", 5))
    with pytest.raises(StorageError, match=r"UNIQUE constraint failed: words\.n.*wait in staging"):
        writer.commit(transaction)
    assert (shown(path), staged(path)) == ([(5, "a")], 2)
    query(path, "DELETE FROM words")
    writer.commit(transaction)
    assert shown(path) == [(5, "c"), (6, "b")]


@pytest.mark.parametrize(
    "columns", ["word TEXT", "word TEXT, n TEXT", "word TEXT, n INTEGER, more TEXT", "w TEXT"]
)
def test_a_table_with_other_columns_is_refused(columns: str, path: Path) -> None:
    query(path, f"CREATE TABLE words ({columns})")
    with pytest.raises(ConfigError, match=f"table 'words' in {path}; expected the columns"):
        Sqlite(path, "words", COLUMNS).open(context())


@pytest.mark.parametrize("columns", [{}, {"a": ""}, {"a": "INTEGER PRIMARY KEY"}, {"a": "x); --"}])
def test_columns_without_a_plain_type_are_refused(columns: dict[str, str], path: Path) -> None:
    with pytest.raises(ConfigError, match="columns of table 'words'"):
        Sqlite(path, "words", columns)


def test_a_full_database_is_reported_and_can_be_tried_again(sink: Sqlite, path: Path) -> None:
    writer = sink.open(context())
    writer.write([("x" * 100_000, 1)])
    with writer._tables.transaction() as connection:
        pass
    connection.execute("PRAGMA max_page_count = 10")
    with pytest.raises(StoreFullError, match=f"database {path}"):
        writer.pre_commit(CheckpointId(1))
    connection.execute("PRAGMA max_page_count = 1000000")
    transaction = writer.pre_commit(CheckpointId(2))
    assert transaction is not None
    writer.commit(transaction)
    assert len(shown(path)) == 1


def test_a_file_that_is_no_database_is_an_error_that_names_it(sink: Sqlite, path: Path) -> None:
    path.write_text("not a database" * 100)
    with pytest.raises(CorruptObjectError, match=f"database {path}"):
        sink.open(context())


def test_a_missing_directory_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "absent" / "words.db"
    with pytest.raises(ConfigError, match=f"database {path}.*create its directory"):
        Sqlite(path, "words", COLUMNS).open(context())


def test_a_transaction_of_another_sink_fails_the_restore(sink: Sqlite) -> None:
    with pytest.raises(RestoreError, match="sink 'job/sink"):
        sink.open(context()).recover([b"\x01"])


@pytest.mark.parametrize(
    ("table", "columns"), [("other", COLUMNS), ("words", {"n": "INTEGER", "word": "TEXT"})]
)
def test_staged_rows_go_nowhere_but_where_they_were_written_for(
    table: str, columns: dict[str, str], sink: Sqlite, path: Path
) -> None:
    transaction = pre_committed(sink.open(context()))
    changed = Sqlite(path, table, columns).open(context(generation=2))
    with pytest.raises(RestoreError, match=r"INSERT INTO \"words\" .* with the table and columns"):
        changed.recover([transaction])
    assert staged(path) == 2
    sink.open(context(generation=3)).commit(transaction)
    changed.recover([transaction])
    assert shown(path) == [("a", 1), ("b", 2)]
