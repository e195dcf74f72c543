"""Sinks into tables with one row for each key: readers see what a dict would hold."""

from collections.abc import Sequence
from itertools import count
from operator import itemgetter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property.test_rescaled_jobs import Breaking
from tests.support.pipelines import config, run
from tests.unit.connectors.sinks.databases import Database
from tests.unit.connectors.sinks.job import STEPS, SinkJob, context, pre_committed
from tidelog import ConfigError, Job, Row
from tidelog.errors import RestoreError, UserFunctionError
from tidelog.storage.memory import MemoryStore

KEY = ("word",)


def table_of(database: Database, table: str = "words") -> dict[Any, Any]:
    return dict(database.ask(f"SELECT word, n FROM {table}"))


def written(database: Database, *records: Any, **options: Any) -> None:
    """One transaction of these records is committed."""
    writer = database.sink(**{"key": KEY, **options}).open(context())
    writer.recover([])
    writer.commit(pre_committed(writer, 1, *records))
    writer.close()


def of_dict(records: Sequence[tuple[Any, Any]]) -> dict[Any, Any]:
    """What a dict holds after the records, in which None removes a key."""
    return {key: value for key, value in dict(records).items() if value is not None}


RECORDS = [(f"k{(n * n) % 7}", None if n % 4 == 3 else n) for n in range(600)]


class KeyedJob(SinkJob):
    """Writes RECORDS; its table holds what a dict would after those that were committed."""

    def write(self) -> None:
        assert self._writer
        self._writer.write(RECORDS[self._position : self._position + 3])
        self._position += 3

    def check(self) -> None:
        assert dict(self._shown()) == of_dict(RECORDS[: self.committed])


def test_a_table_equals_a_dict_whatever_crashes(database: Database) -> None:
    numbers = count()

    @settings(max_examples=100 if database.kind == "sqlite" else 20, deadline=None)
    @given(st.lists(st.sampled_from(STEPS), max_size=20))
    def crashed(steps: list[str]) -> None:
        table = f"words_{next(numbers)}"

        def shown() -> list[Any]:
            return database.ask(f"SELECT word, n FROM {table}")

        KeyedJob(lambda: database.sink(table, key=KEY), shown).run([*steps, "crash"])

    crashed()


def test_the_last_record_of_a_key_counts(database: Database) -> None:
    written(database, ("a", 1), ("b", 2), ("a", 3), ("c", 4), ("c", None), ("b", None), ("b", 5))
    assert table_of(database) == {"a": 3, "b": 5}


def test_a_key_may_have_several_columns_and_a_record_names(database: Database) -> None:
    columns = {"word": "text", "day": "bigint", "n": "bigint", "note": "text"}
    records = [
        Row(word="a", day=1, n=1, note="x"),
        {"note": None, "n": 2, "day": 2, "word": "a"},
        ("a", 1, None, "y"),
        ("b", 1, None, None),
        ("a", 2, None, None),
    ]
    written(database, *records, columns=columns, key=["day", "word"])
    assert database.ask("SELECT * FROM words") == [("a", 1, None, "y")]


def test_a_table_of_keys_alone_is_a_set(database: Database) -> None:
    written(database, ("a",), ("b",), ("a",), columns={"word": "text"})
    assert sorted(database.ask("SELECT word FROM words")) == [("a",), ("b",)]


@pytest.mark.parametrize(
    "declared",
    [
        "word text PRIMARY KEY, n bigint",
        "word text, n bigint, UNIQUE (word)",
        "word text UNIQUE, n bigint UNIQUE",
    ],
)
def test_a_table_that_exists_is_used_when_it_has_one_row_for_each_key(
    declared: str, database: Database
) -> None:
    database.ask(f"CREATE TABLE words ({declared})")
    written(database, ("a", 1), ("a", 2))
    assert table_of(database) == {"a": 2}


@pytest.mark.parametrize(
    "declared", ["word text, n bigint", "word text, n bigint, PRIMARY KEY (word, n)"]
)
def test_a_table_that_may_have_two_rows_for_a_key_is_refused_with_what_to_do(
    declared: str, database: Database
) -> None:
    database.ask(f"CREATE TABLE words ({declared})")
    database.ask("CREATE UNIQUE INDEX partial ON words (word) WHERE n > 5")
    database.ask("CREATE UNIQUE INDEX lowered ON words (lower(word))")
    sink = database.sink(key=KEY)
    with pytest.raises(ConfigError, match=r"table 'words' .*unique index on \('word',\)") as error:
        sink.open(context())
    action = str(error.value).partition("CREATE UNIQUE")[2].partition(", once")[0]
    database.ask(f"CREATE UNIQUE {action.strip()}")
    written(database, ("a", 1), ("a", 2))
    assert table_of(database) == {"a": 2}


@pytest.mark.parametrize("key", [("word", "m"), ("word", "word"), "word"])
def test_a_key_that_is_no_list_of_columns_is_refused(key: Any, database: Database) -> None:
    with pytest.raises(ConfigError, match=r"key; expected a list of names.*'word', 'n'"):
        database.sink(key=key)


@pytest.mark.parametrize("word", [None, float("nan")])
def test_a_record_without_a_key_is_refused_with_its_column(word: Any, database: Database) -> None:
    sink = database.sink(columns={"word": "real", "n": "bigint"}, key=KEY)
    writer = sink.open(context())
    with pytest.raises(UserFunctionError, match=r"table 'words', column 'word'.* in key="):
        writer.write([(word, 1)])


def test_sqlite_takes_keys_of_any_kind_and_compares_them_as_its_collation_does(
    lite: Database,
) -> None:
    written(lite, (1, 1), (1.5, 2), (1.0, 3), columns={"word": "INTEGER", "n": "INTEGER"})
    assert table_of(lite) == {1: 3, 1.5: 2}
    lite.ask("CREATE TABLE names (word TEXT COLLATE NOCASE PRIMARY KEY, n BIGINT)")
    written(lite, ("A", 1), ("b", 2), ("a", None), ("B", 3), table="names")
    assert table_of(lite, "names") == {"b": 3}


def test_a_key_is_changed_only_when_nothing_waits_in_staging(database: Database) -> None:
    transaction = pre_committed(database.sink(key=KEY).open(context()), 1, ("a", 1))
    plain = database.sink()
    with pytest.raises(RestoreError, match="start the job with the sink as before"):
        plain.open(context(2)).recover([transaction])
    database.sink(key=KEY).open(context(3)).recover([transaction])
    assert table_of(database) == {"a": 1}


@pytest.mark.parametrize("shapes", [[2, 5, 3], [1, 4]])
def test_a_table_holds_the_newest_value_of_each_key_whatever_the_parallelism(
    shapes: list[int], database: Database
) -> None:
    source, store = Breaking(3, "a"), MemoryStore()
    for number, parallelism in enumerate(shapes):
        last = number == len(shapes) - 1
        source.left = None if last else 6
        job = Job("sums")
        sums = job.source(source).key_by(itemgetter(0)).sum(itemgetter(2), emit_updates=True)
        # Keys with an even sum are removed until the next record.
        sums.map(lambda pair: (pair[0], pair[1] if pair[1] % 2 else None)).sink(
            database.sink(key=KEY)
        )
        try:
            run(job, store, config(parallelism=parallelism), seed=number)
        except UserFunctionError:
            assert not last
    sums_of: dict[str, int] = {}
    for key, _, n in source.records:
        sums_of[key] = sums_of.get(key, 0) + n
    assert table_of(database) == {key: total for key, total in sums_of.items() if total % 2}
