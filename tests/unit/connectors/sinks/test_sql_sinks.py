"""Sinks into tables: their columns, constraints and names, and what SQLite alone has."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.unit.connectors.sinks import job
from tests.unit.connectors.sinks.databases import COLUMNS, Database
from tests.unit.connectors.sinks.job import context
from tidelog import Row
from tidelog.errors import (
    ConfigError,
    ObjectNotFoundError,
    RestoreError,
    StorageError,
    UserFunctionError,
)

pre_committed = partial(job.pre_committed, usual=[("a", 1), ("b", 2)])


@pytest.mark.parametrize("lost", ["1 = 1", "seq = 1"])
def test_a_lost_transaction_is_an_error_and_commits_nothing(lost: str, database: Database) -> None:
    writer = database.sink().open(context())
    transaction = pre_committed(writer)
    seq = "seq" if database.kind == "sqlite" else "_tidelog_seq"
    database.ask(f"DELETE FROM {database.pending} WHERE {lost.replace('seq', seq)}")
    with pytest.raises(ObjectNotFoundError, match=r"transaction 1-a-1 of .*expected 2 rows"):
        writer.commit(transaction)
    assert database.shown() == []


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
def test_records_are_taken_by_name_or_position(record: Any, database: Database) -> None:
    writer = database.sink().open(context())
    writer.commit(pre_committed(writer, 1, record))
    assert database.shown() == [("tide", 1)]


@pytest.mark.parametrize(
    ("record", "found"),
    [
        (("a",), "1 value"),
        (("a", 1, 2), "3 values"),
        ({"word": "a"}, r"fields \('word',\)"),
        (Row(word="a", m=1), r"fields \('word', 'm'\)"),
        ("ab", "a str"),
    ],
)
def test_a_record_of_another_shape_is_an_error_at_once(
    record: Any, found: str, database: Database
) -> None:
    with pytest.raises(
        UserFunctionError, match=rf"table 'words'; .*\('word', 'n'\); found {found}"
    ):
        database.sink().open(context()).write([record])


def test_names_may_hold_any_character(database: Database) -> None:
    table, column = 'a "table"; DROP %s', 'sp ace"d %(n)s $1'
    writer = database.sink(table, {column: "varchar(20)"}).open(context())
    writer.commit(pre_committed(writer, 1, {column: "x"}))
    assert database.ask("""SELECT * FROM "a ""table""; DROP %s" """) == [("x",)]


def test_a_table_with_these_columns_is_used_with_its_constraints(database: Database) -> None:
    database.ask("CREATE TABLE words (n bigint PRIMARY KEY, word text NOT NULL)")
    writer = database.sink().open(context())
    writer.commit(pre_committed(writer, 1, ("a", 5)))
    transaction = pre_committed(writer, 2, ("b", 6), ("c", 5))
    with pytest.raises(StorageError, match=r"(words_pkey|words\.n).*wait in staging"):
        writer.commit(transaction)
    assert (database.shown(), database.staged()) == ([("a", 5)], 2)
    database.ask("DELETE FROM words")
    writer.commit(transaction)
    assert database.shown() == [("b", 6), ("c", 5)]


@pytest.mark.parametrize(
    ("kind", "table", "columns"),
    [
        ("sqlite", "other", COLUMNS),
        ("sqlite", "words", {"n": "bigint", "word": "text"}),
        ("postgres", "other", COLUMNS),
    ],
)
def test_staged_rows_go_nowhere_but_where_they_were_written_for(
    kind: str, table: str, columns: dict[str, str], request: pytest.FixtureRequest
) -> None:
    at = request.getfixturevalue("tmp_path") / "words.db"
    database = Database(kind, at if kind == "sqlite" else request.getfixturevalue("conninfo"))
    transaction = pre_committed(database.sink().open(context()))
    changed = database.sink(table, columns).open(context(generation=2))
    with pytest.raises(RestoreError, match=r"INTO \"words\" .* with the sink as before"):
        changed.recover([transaction])
    assert database.staged() == 2
    database.sink().open(context(generation=3)).commit(transaction)
    database.sink(table, columns).open(context(generation=4)).recover([transaction])
    assert database.shown() == [("a", 1), ("b", 2)]


@pytest.mark.parametrize("found", ["nothing", "another one under its name"])
def test_rows_do_not_go_into_a_database_that_was_removed(
    found: str, lite: Database, tmp_path: Path
) -> None:
    writer = lite.sink().open(context())
    transaction = pre_committed(writer)
    kept = lite.at.rename(tmp_path / "kept.db")
    if found != "nothing":
        lite.at.touch()
    for act in (lambda: writer.commit(transaction), lambda: pre_committed(writer, 2)):
        with pytest.raises(StorageError, match=rf"words\.db; .* was opened; found {found}"):
            act()
    kept.replace(lite.at)
    writer.commit(transaction)
    assert lite.shown() == [("a", 1), ("b", 2)]


@pytest.mark.parametrize(
    "value", [None, 0, -(2**63), 2**63 - 1, 1.5, "", "\u2693\0", b"\x00\xff", True]
)
def test_values_come_out_of_sqlite_as_they_went_in(value: Any, lite: Database) -> None:
    writer = lite.sink("words", {"value": "BLOB"}).open(context())
    writer.commit(pre_committed(writer, 1, (value,)))
    assert lite.ask("SELECT * FROM words") == [(value,)]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({}, "columns of table 'words'; expected names with types: "),
        ({1: "text"}, "name of a column of table 'words'; expected a text; found 1"),
        ({"n": str}, "type of column 'n' of table 'words'; expected a text such as .*; found str"),
        ({"n": "text primary key"}, "type of column 'n' .* found 'text primary key'.*create the"),
        ({"n": "strng"}, "strng.*correct "),
    ],
)
def test_a_type_that_is_none_is_told_before_a_table_is_made(
    columns: Any, message: str, database: Database
) -> None:
    with pytest.raises(ConfigError, match=rf"(?i){message}"):
        database.sink(columns=columns).open(context())
    tables = {"sqlite": "sqlite_master", "postgres": "pg_tables WHERE schemaname = 'public'"}
    assert database.ask(f"SELECT * FROM {tables[database.kind]}") == []


def test_a_table_of_sqlite_may_have_any_type_that_somebody_gave_it(tmp_path: Path) -> None:
    database = Database("sqlite", tmp_path / "n.db")
    database.ask("CREATE TABLE words (word money, n bigint)")
    writer = database.sink(columns={"word": "money", "n": "bigint"}).open(context())
    writer.commit(pre_committed(writer, 1, (5, 2)))
    assert database.shown() == [(5, 2)]
