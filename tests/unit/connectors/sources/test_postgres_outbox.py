"""The outbox: every committed row once, however transactions overlap, and none before its time."""

import logging
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from importlib import import_module
from random import Random
from typing import Any
from uuid import UUID

import pytest

from tests.support.depth import more_in_depth
from tests.support.postgres import query
from tests.unit.connectors.sources.reading import stored
from tidelog import ConfigError, PostgresOutboxSource, Row, StoreUnreachableError, UserFunctionError

CREATE = """CREATE TABLE outbox (
    id bigint GENERATED ALWAYS AS IDENTITY,
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    event text, PRIMARY KEY (xid, id))"""


@pytest.fixture
def outbox(conninfo: str) -> str:
    query(conninfo, CREATE)
    return conninfo


def connect(conninfo: str) -> Any:
    """A program that adds rows, in transactions."""
    return import_module("psycopg").connect(conninfo)


def add(program: Any, event: str) -> None:
    program.execute("INSERT INTO outbox (event) VALUES (%s)", (event,))


@pytest.fixture
def programs(outbox: str) -> Iterator[list[Any]]:
    made = [connect(outbox) for _ in range(4)]
    yield made
    for program in made:
        program.close()


def events(reader: Any) -> list[str]:
    """All that can be read now."""
    found = []
    while batch := reader.read():
        found += [row.event for row in batch]
    return found


def source(conninfo: str, **options: Any) -> PostgresOutboxSource:
    return PostgresOutboxSource(conninfo, "outbox", **{"columns": ["event"], **options})


def test_a_smaller_number_that_commits_later_is_not_passed_over(
    outbox: str, programs: list[Any]
) -> None:
    reader = source(outbox).open("outbox", None)
    slow, fast, *_ = programs
    add(slow, "first number")
    add(fast, "second number")
    fast.commit()
    assert query(outbox, "SELECT id, event FROM outbox") == [(2, "second number")]
    assert events(reader) == [], "whoever read on from number 2 would lose number 1"
    add(slow, "third number")
    slow.commit()
    assert events(reader) == ["first number", "third number", "second number"]
    reader.close()


@pytest.mark.parametrize("seed", range(more_in_depth(4, 60)))
def test_every_committed_row_comes_once_whatever_overlaps(
    seed: int, outbox: str, programs: list[Any]
) -> None:
    rng, seen, number = Random(seed), list[str](), 0
    open_: dict[Any, list[str]] = {program: [] for program in programs}
    committed: set[str] = set()
    outbox_of = source(outbox, batch_rows=3)
    reader = outbox_of.open("outbox", None)
    for _ in range(120):
        program, step = rng.choice(programs), rng.random()
        if step < 0.45:
            number += 1
            add(program, f"{number}")
            open_[program].append(f"{number}")
        elif step < 0.65:
            program.commit()
            committed.update(open_[program])
            open_[program] = []
        elif step < 0.75:
            program.rollback()
            open_[program] = []
        elif step < 0.95:
            seen += [row.event for row in reader.read() or ()]
        else:  # a restart
            position = stored(reader.position)
            reader.close()
            reader = outbox_of.open("outbox", position)
        assert set(seen) <= committed
    for program in programs:
        program.rollback()
    seen += events(reader)
    assert sorted(seen) == sorted(committed)
    in_order = query(outbox, "SELECT event FROM outbox ORDER BY xid, id")
    assert seen == [event for (event,) in in_order]
    reader.close()


def test_rows_have_the_columns_of_the_table_and_values_of_python(conninfo: str) -> None:
    query(
        conninfo,
        'CREATE TABLE "odd %s" (tx xid8 NOT NULL DEFAULT pg_current_xact_id(), "Sub id" int '
        "NOT NULL, j jsonb, at timestamptz, price numeric(9,2), key uuid, raw bytea, tags text[])",
    )
    query(
        conninfo,
        """INSERT INTO "odd %s" VALUES (DEFAULT, 1, '{"a": [1, null]}',
        '2026-01-01 12:00+02', 1.5, '00000000-0000-0000-0000-000000000007', '\\x00ff', '{a,b}')""",
    )
    outbox = PostgresOutboxSource(conninfo, "odd %s", id="Sub id", xid="tx", schema="public")
    reader = outbox.open("odd %s", None)
    [row] = reader.read() or []
    reader.close()
    assert row.asDict() == {
        "Sub id": 1,
        "j": {"a": [1, None]},
        "at": datetime(2026, 1, 1, 10, tzinfo=UTC),
        "price": Decimal("1.50"),
        "key": UUID(int=7),
        "raw": b"\0\xff",
        "tags": ["a", "b"],
    }
    assert isinstance(row, Row)


def test_a_value_that_python_has_none_for_is_an_error_with_a_way_out(conninfo: str) -> None:
    xid = "xid xid8 NOT NULL DEFAULT pg_current_xact_id()"
    query(conninfo, f"CREATE TABLE odd (id int NOT NULL, {xid}, at date)")
    query(conninfo, "INSERT INTO odd VALUES (1, DEFAULT, 'infinity')")
    reader = PostgresOutboxSource(conninfo, "odd").open("odd", None)
    with pytest.raises(UserFunctionError, match=r"date too large.*leave the column out with col"):
        reader.read()
    reader.close()


def test_rows_behind_a_completed_checkpoint_are_deleted_and_no_others(outbox: str) -> None:
    deleting = source(outbox, delete=True, batch_rows=1)
    query(outbox, "INSERT INTO outbox (event) VALUES ('a'), ('b'), ('c')")

    def left() -> list[str]:
        return [event for (event,) in query(outbox, "SELECT event FROM outbox ORDER BY id")]

    reader = deleting.open("outbox", None)
    reader.read()
    first = stored(reader.position)
    reader.read()
    assert left() == ["a", "b", "c"], "nothing is checkpointed"
    deleting.on_checkpoint_complete({"outbox": first})
    reader.read()
    assert left() == ["b", "c"]
    last = stored(reader.position)
    reader.close()
    reader = source(outbox, delete=True).open("outbox", last)
    assert (events(reader), left()) == ([], [])
    reader.close()


def test_rows_of_a_transaction_with_one_number_are_all_read_before_they_are_deleted(
    conninfo: str,
) -> None:
    xid = "xid xid8 NOT NULL DEFAULT pg_current_xact_id()"
    query(conninfo, f"CREATE TABLE outbox (id int NOT NULL, {xid}, event int)")
    query(conninfo, "INSERT INTO outbox (id, event) SELECT 0, n FROM generate_series(1, 2500) n")
    deleting = source(conninfo, delete=True, batch_rows=1000)
    reader, seen = deleting.open("outbox", None), list[int]()
    while batch := reader.read():
        seen += [row.event for row in batch]
        deleting.on_checkpoint_complete({"outbox": stored(reader.position)})
    reader.read()
    reader.close()
    assert sorted(seen) == list(range(1, 2501))
    assert query(conninfo, "SELECT count(*) FROM outbox") == [(0,)]


def test_a_table_whose_rows_may_lack_their_transaction_is_refused(conninfo: str) -> None:
    query(
        conninfo, "CREATE TABLE outbox (id int, xid xid8 DEFAULT pg_current_xact_id(), event int)"
    )
    query(conninfo, "INSERT INTO outbox VALUES (1, NULL, 1)")
    with pytest.raises(
        ConfigError, match=r"never be read; .*'xid'\] .*Next: ALTER TABLE (.*)\.$"
    ) as no:
        source(conninfo).open("outbox", None)
    query(conninfo, "DELETE FROM outbox")
    query(conninfo, no.value.action)
    source(conninfo).open("outbox", None).close()


def test_a_server_that_is_away_is_asked_again_and_the_log_says_so(
    outbox: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tidelog")
    psycopg = import_module("psycopg")
    reader = source(outbox, poll=0.25).open("outbox", None)
    query(outbox, "INSERT INTO outbox (event) VALUES ('kept')")

    def refused(*_: Any, **__: Any) -> Any:
        raise psycopg.OperationalError("connection refused")

    reader._server.close()
    with monkeypatch.context() as away:
        away.setattr(psycopg, "connect", refused)
        assert [reader.read() for _ in range(3)] == [[], [], []]
        assert reader.delay_s == 0.25
        with pytest.raises(StoreUnreachableError, match="connection refused"):
            source(outbox).open("outbox", None)
    assert events(reader) == ["kept"]
    reader.close()
    said = [record.event for record in caplog.records if hasattr(record, "event")]
    assert said == ["source_away", "source_back"]


@pytest.mark.parametrize(
    ("table", "options", "message"),
    [
        ("none", {}, "table 'none' in database .*expected an outbox table; found none"),
        ("plain", {}, 'a column \'xid\' of type xid8 .*ALTER TABLE "plain" ADD COLUMN "xid" xid8'),
        ("outbox", {"id": "event"}, "a column 'event' of type bigint"),
        ("outbox", {"columns": ["event", "who"]}, r"no \['who'\]. Next: correct columns="),
        ("outbox", {"columns": "event"}, "columns"),
        ("outbox", {"poll": 0}, "poll"),
        ("outbox", {"batch_rows": 0}, "batch_rows"),
    ],
)
def test_a_table_that_is_no_outbox_is_refused(
    table: str, options: dict[str, Any], message: str, outbox: str
) -> None:
    query(outbox, "CREATE TABLE plain (id bigint, event text)")
    with pytest.raises(ConfigError, match=message):
        PostgresOutboxSource(outbox, table, **options).open(table, None)


def test_a_notification_ends_the_wait_for_the_next_look(outbox: str) -> None:
    # A look an hour: without the notification the test would not end.
    reader = source(outbox, poll=3600, channel="Out box").open("outbox", None)
    program = connect(outbox)

    def notify() -> None:
        while not query(outbox, "SELECT 1 FROM pg_stat_activity WHERE query LIKE 'COMMIT%'"):
            pass
        add(program, "at last")
        program.execute('NOTIFY "Out box"')
        program.commit()

    notifying = threading.Thread(target=notify)
    notifying.start()
    assert [row.event for row in reader.read() or ()] == ["at last"]
    notifying.join()
    program.close()
    reader.close()
