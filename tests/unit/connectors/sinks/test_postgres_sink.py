"""The PostgreSQL sink: what readers of a table see, whenever they look and whatever crashed."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.first_jobs.programs import run
from tests.support.clock import VirtualClock, in_virtual_time
from tests.support.documentation import BLOCKS
from tests.support.pipelines import config
from tests.support.postgres import query
from tests.unit.connectors.sinks.databases import COLUMNS, Database
from tests.unit.connectors.sinks.job import context, copying
from tests.unit.connectors.sinks.outputs import output
from tests.unit.connectors.sinks.test_sql_sinks import pre_committed
from tidelog import JobResult, JobRunner, PostgresSink
from tidelog.errors import (
    ConfigError,
    FencedError,
    StorageError,
    StoreUnreachableError,
    UserFunctionError,
)
from tidelog.ids import CheckpointId
from tidelog.storage.memory import MemoryStore


def shown(conninfo: str) -> list[Any]:
    return Database("postgres", conninfo).shown()


def staged(conninfo: str) -> int:
    return Database("postgres", conninfo).staged()


@pytest.fixture
def sink(conninfo: str) -> PostgresSink:
    return PostgresSink(conninfo, "words", COLUMNS)


def test_the_program_of_the_documentation_counts_words(conninfo: str, tmp_path: Path) -> None:
    """The page's PostgreSQL program uses the stream `counts` of its SQLite program."""
    before, program = BLOCKS["sinks 0"], BLOCKS["sinks 1"]
    address = "postgresql://tide@db.example/tides"
    assert address in program
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "one.txt").write_text("the tide rises\nthe tide falls\n")
    counts = before.replace("texts/", str(tmp_path / "texts")).rpartition("counts.sink")[0]
    names: dict[str, Any] = {}
    exec(counts + program.replace(address, conninfo), names)
    run(names["job"], tmp_path / "store")
    found = query(conninfo, "SELECT word, max(n) FROM counts GROUP BY word ORDER BY word")
    assert found == [("falls", 1), ("rises", 1), ("the", 2), ("tide", 2)]


def test_no_table_is_made_whose_name_is_a_schema_and_a_table(conninfo: str) -> None:
    query(conninfo, "CREATE SCHEMA sales")
    meant = PostgresSink(conninfo, "sales.words", COLUMNS)
    with pytest.raises(ConfigError, match="pass 'words' with schema='sales', or create a table"):
        meant.open(context())
    query(conninfo, 'CREATE TABLE "sales.words" (word text, n bigint)')
    meant.open(context()).close()
    PostgresSink(conninfo, "words", COLUMNS, schema="sales").open(context()).close()


class TestFencing:
    """A process that slept through the start of its successor."""

    def test_a_zombie_can_neither_stage_nor_commit(self, sink: PostgresSink, conninfo: str) -> None:
        zombie = sink.open(context(generation=1))
        transaction = pre_committed(zombie)
        zombie.write([("z", 9)])
        sink.open(context(generation=4, attempt="b")).recover([])
        for act in (lambda: zombie.commit(transaction), lambda: zombie.pre_commit(CheckpointId(2))):
            with pytest.raises(FencedError, match=r"start 1-a of sink 'job/sink/words'.*start 4-b"):
                act()
        assert (shown(conninfo), staged(conninfo)) == ([], 0)

    def test_a_zombie_that_opens_late_changes_nothing(self, sink: PostgresSink) -> None:
        writer = sink.open(context(generation=2))
        with pytest.raises(FencedError, match='DELETE FROM "_tidelog_writers"'):
            sink.open(context(generation=1))
        writer.commit(pre_committed(writer))

    def test_a_commit_under_way_ends_before_the_successor_begins(
        self, sink: PostgresSink, conninfo: str
    ) -> None:
        writer = sink.open(context())
        with ThreadPoolExecutor(1) as pool:
            with writer._tables.transaction():
                successor = pool.submit(sink.open, context(generation=2))
                waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
                while not query(conninfo, waiting)[0][0]:
                    assert not successor.done()
            successor.result()
        with pytest.raises(FencedError), writer._tables.transaction():
            pass

    async def test_a_job_that_finds_a_newer_one_stops(self, request: pytest.FixtureRequest) -> None:
        out, store, clock = output("postgres", request), MemoryStore(), VirtualClock()
        numbers = [(n,) for n in range(40)]

        def started(seed: int) -> "asyncio.Task[JobResult]":
            effects, copy = in_virtual_time(seed, clock), copying(numbers, out.sink())
            runner = JobRunner(copy, store, config(parallelism=1), effects)
            return asyncio.ensure_future(runner.run())

        older = started(1)
        await clock.sleep(2.5)
        newer = started(2)
        with pytest.raises(FencedError, match="newest one that writes to its output"):
            await older
        await newer
        assert sorted(out.shown()) == [n for (n,) in numbers]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("bigint", [None, -(2**63), 2**63 - 1]),
        ("double precision", [1.5, float("inf"), None]),
        ("text", ["", "\u2693 \\N \t\n", "NULL", None]),
        ("bytea", [b"", b"\x00\xff\\"]),
        ("boolean", [True, False]),
        ("numeric(20, 4)", [Decimal("1234567890123456.7891")]),
        ("timestamptz", [datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)]),
        ("date", [date(2026, 1, 2)]),
        ("uuid", [UUID(int=7)]),
        ("int[]", [[1, None, 3], []]),
    ],
)
def test_values_come_out_as_they_went_in(kind: str, values: list[Any], conninfo: str) -> None:
    writer = PostgresSink(conninfo, "kinds", {"value": kind}).open(context())
    writer.commit(pre_committed(writer, 1, *[(value,) for value in values]))
    assert query(conninfo, "SELECT value FROM kinds ORDER BY ctid") == [(v,) for v in values]


@pytest.mark.parametrize("value", ["many", 2**63, {"a": 1}])
def test_a_value_that_its_column_does_not_take_is_the_users_error_before_anything_is_durable(
    value: Any, sink: PostgresSink, conninfo: str
) -> None:
    writer = sink.open(context())
    with pytest.raises(UserFunctionError, match="change the record before the sink"):
        pre_committed(writer, 1, ("a", 1), ("b", value))
    assert staged(conninfo) == 0


def test_a_schema_of_its_own_holds_all_tables(conninfo: str) -> None:
    sink = PostgresSink(conninfo, "words", COLUMNS, schema="tide")
    with pytest.raises(ConfigError, match="create the schema"):
        sink.open(context())
    query(conninfo, "CREATE SCHEMA tide")
    writer = sink.open(context())
    writer.commit(pre_committed(writer))
    tables = "SELECT DISTINCT schemaname FROM pg_tables WHERE tableowner = 'tidelog' AND"
    ours = "(tablename LIKE '\\_tidelog%' OR tablename = 'words')"
    assert query(conninfo, f"{tables} {ours}") == [("tide",)]


def test_a_table_is_used_wherever_the_search_path_finds_it(conninfo: str) -> None:
    query(conninfo, "CREATE SCHEMA tide")
    query(conninfo, "CREATE TABLE tide.words (word text, n bigint)")
    found = f"{conninfo} options='-c search_path=public,tide'"
    writer = PostgresSink(found, "words", COLUMNS).open(context())
    writer.commit(pre_committed(writer))
    assert query(conninfo, "SELECT count(*) FROM tide.words") == [(2,)]
    assert query(conninfo, "SELECT to_regclass('public.words')") == [(None,)]


def test_a_trigger_of_the_table_may_leave_rows_out(sink: PostgresSink, conninfo: str) -> None:
    writer = sink.open(context())
    query(
        conninfo,
        "CREATE FUNCTION only_a() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN IF NEW.word = 'a' THEN RETURN NEW; END IF; RETURN NULL; END $$",
    )
    query(
        conninfo, "CREATE TRIGGER t BEFORE INSERT ON words FOR EACH ROW EXECUTE FUNCTION only_a()"
    )
    writer.commit(pre_committed(writer))
    assert (shown(conninfo), staged(conninfo)) == ([("a", 1)], 0)


def test_other_columns_than_those_in_staging_are_refused(sink: PostgresSink, conninfo: str) -> None:
    transaction = pre_committed(sink.open(context()))
    query(conninfo, "ALTER TABLE words ADD COLUMN more text")
    changed = PostgresSink(conninfo, "words", {**COLUMNS, "more": "text"})
    with pytest.raises(ConfigError, match=r"staging table .*stop the job with the columns as"):
        changed.open(context(generation=2))
    query(conninfo, "ALTER TABLE words DROP COLUMN more")
    sink.open(context(generation=3)).recover([transaction])
    assert len(shown(conninfo)) == 2


def test_a_connection_that_broke_is_replaced_and_nothing_is_lost(
    sink: PostgresSink, conninfo: str
) -> None:
    writer = sink.open(context())
    writer.write([("a", 1)])
    others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
    query(conninfo, f"{others} AND application_name = 'tidelog'")
    transaction = writer.pre_commit(CheckpointId(1))
    assert transaction is not None
    writer.commit(transaction)
    assert shown(conninfo) == [("a", 1)]


def test_a_server_that_is_not_there_is_named_without_the_password(conninfo: str) -> None:
    nowhere = "postgresql://tide:secret@localhost:1/tides"
    with pytest.raises(StoreUnreachableError, match="database tides at localhost:1") as caught:
        PostgresSink(nowhere, "words", COLUMNS).open(context())
    assert "secret" not in str(caught.value)


def test_rows_that_a_narrower_column_refuses_wait_until_it_is_as_wide_as_it_was(
    conninfo: str,
) -> None:
    sink = PostgresSink(conninfo, "words", {"word": "varchar(10)", "n": "bigint"})
    writer = sink.open(context())
    transaction = pre_committed(writer, 1, ("estuary", 1))
    query(conninfo, "ALTER TABLE words ALTER word TYPE varchar(3)")
    with pytest.raises(StorageError, match=r"value too long.*the types back.*the next start"):
        writer.commit(transaction)
    query(conninfo, "ALTER TABLE words ALTER word TYPE varchar(10)")
    sink.open(context(2)).recover([transaction])
    assert query(conninfo, "SELECT word FROM words") == [("estuary",)]
