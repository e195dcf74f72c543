"""PostgreSQL by way of PgBouncer in transaction mode: each transaction is in another session."""

import logging
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from tests.support.pgbouncer import pooler, reason_without
from tests.support.postgres import query
from tests.unit.connectors.sinks.job import context, pre_committed
from tidelog import PostgresOutboxSource, PostgresSink

OUTBOX = "CREATE TABLE outbox (id int NOT NULL, xid xid8 NOT NULL DEFAULT pg_current_xact_id())"


@pytest.fixture
def pooled(conninfo: str) -> Iterator[str]:
    if (reason := reason_without()) is not None:
        pytest.skip(reason)
    with pooler(conninfo) as address:
        yield address


def test_each_of_four_starts_writes_every_record_once(conninfo: str, pooled: str) -> None:
    """Statements that a connection of an earlier start has prepared are in the sessions still."""
    for generation in range(1, 5):
        writer = PostgresSink(pooled, "numbers", {"n": "bigint"}).open(context(generation))
        for checkpoint in range(1, 9):
            writer.commit(pre_committed(writer, checkpoint, (10 * generation + checkpoint,)))
        writer.close()
    expected = [(10 * start + number,) for start in range(1, 5) for number in range(1, 9)]
    assert query(conninfo, "SELECT n FROM numbers ORDER BY n") == expected


def test_times_are_in_utc_and_commits_durable_in_whatever_session_they_come(
    conninfo: str, pooled: str
) -> None:
    """Though what a client sets for its session is that of another one in the next transaction."""
    database = dict(part.split("=") for part in conninfo.split())["dbname"]
    for setting in ("timezone = 'America/New_York'", "synchronous_commit = off"):
        query(conninfo, f"ALTER DATABASE {database} SET {setting}")
    columns = {"at": "timestamptz", "durable": "text", "n": "bigint"}
    writer = PostgresSink(pooled, "times", columns).open(context())
    query(conninfo, "ALTER TABLE times ALTER durable SET DEFAULT 'unknown'")
    query(
        conninfo,
        "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "NEW.durable = current_setting('synchronous_commit'); RETURN NEW; END $$",
    )
    query(conninfo, "CREATE TRIGGER t BEFORE INSERT ON times FOR EACH ROW EXECUTE FUNCTION note()")
    moment = datetime(2026, 7, 1, 12)
    for number in range(4):
        record = (moment, None, number)
        writer.commit(pre_committed(writer, number + 1, record, ("2026-07-01 12:00", None, number)))
    writer.close()
    rows = query(conninfo, "SELECT DISTINCT at, durable FROM times")
    assert rows == [(moment.replace(tzinfo=UTC), "on")]


def test_an_outbox_polls_where_no_session_could_listen(
    conninfo: str, pooled: str, caplog: pytest.LogCaptureFixture
) -> None:
    query(conninfo, OUTBOX)
    reader = PostgresOutboxSource(pooled, "outbox", channel="outbox", poll=0.25).open(
        "outbox", None
    )
    for number in range(4):
        query(conninfo, f"INSERT INTO outbox VALUES ({number})")
        assert [row.id for row in reader.read() or ()] == [number]
    assert reader.read() == [] and reader.delay_s == 0.25
    reader.close()
    said = [r for r in caplog.records if getattr(r, "event", "") == "not_listening"]
    assert len(said) == 1 and said[0].levelno == logging.WARNING
