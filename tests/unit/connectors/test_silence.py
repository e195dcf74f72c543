"""Servers that take connections and never answer: every call ends, by its deadline or with its job.

Without deadlines these tests would not end.
"""

import asyncio
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_kafka import FakeKafka
from tests.support.pipelines import config
from tests.support.postgres import query
from tests.support.silent import Between, between
from tests.unit.connectors.sinks.job import context, copying, pre_committed
from tidelog import (
    IcebergSink,
    JobRunner,
    KafkaSink,
    KafkaSource,
    PostgresOutboxSource,
    PostgresSink,
    Sink,
    StoreUnreachableError,
)
from tidelog.connectors import outside
from tidelog.effects import Effects
from tidelog.ids import CheckpointId
from tidelog.storage.memory import MemoryStore

COLUMNS = {"n": "bigint"}


@pytest.fixture
def line(conninfo: str) -> Iterator[Between]:
    with between(Path(_parts(conninfo)["host"], ".s.PGSQL.5432")) as line:
        yield line


@pytest.fixture
def through(conninfo: str, line: Between) -> str:
    """How to connect to the database through the line."""
    database = _parts(conninfo)["dbname"]
    return f"host=127.0.0.1 port={line.port} user=tidelog dbname={database} sslmode=disable"


def _parts(conninfo: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in conninfo.split())


def shown(conninfo: str) -> list[Any]:
    return query(conninfo, "SELECT n FROM numbers ORDER BY n")


def test_a_postgres_sink_gives_a_silent_server_up_and_goes_on_when_it_speaks_again(
    conninfo: str,
    through: str,
    line: Between,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outside, "_SAY_S", 0.0)
    writer = PostgresSink(through, "numbers", COLUMNS, answer_s=0.6).open(context())
    first = pre_committed(writer, 1, (1,))
    writer.write([(2,)])
    line.fall_silent()
    for act in (lambda: writer.commit(first), lambda: writer.pre_commit(CheckpointId(2))):
        with pytest.raises(StoreUnreachableError, match=r"database test.*127.0.0.1"):
            act()
    said = [r.getMessage() for r in caplog.records if getattr(r, "event", "").startswith("outside")]
    assert said and "a transaction in database test" in said[0], said
    line.speak()
    second = writer.pre_commit(CheckpointId(3))
    assert second is not None
    for transaction in (first, second):
        writer.commit(transaction)
    writer.close()
    assert shown(conninfo) == [(1,), (2,)]


def test_an_outbox_says_that_a_server_is_silent_and_reads_on_when_it_speaks_again(
    conninfo: str, through: str, line: Between, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tidelog")
    xid = "xid xid8 NOT NULL DEFAULT pg_current_xact_id()"
    query(conninfo, f"CREATE TABLE outbox (id int NOT NULL, {xid}, PRIMARY KEY (xid, id))")
    reader = PostgresOutboxSource(through, "outbox", answer_s=0.6).open("outbox", None)
    line.fall_silent()
    query(conninfo, "INSERT INTO outbox (id) VALUES (5)")
    assert reader.read() == []
    line.speak()
    assert [row.id for row in reader.read() or ()] == [5]
    reader.close()
    events = [getattr(record, "event", "") for record in caplog.records]
    assert [event for event in events if event.startswith("source")] == [
        "source_away",
        "source_back",
    ]


def test_an_iceberg_catalogue_that_is_silent_is_given_up() -> None:
    with between() as line:
        catalog = {"type": "rest", "uri": f"http://127.0.0.1:{line.port}"}
        with pytest.raises(StoreUnreachableError, match=r"'lake.numbers'; .*none within 0.5 s"):
            IcebergSink(catalog, "lake.numbers", answer_s=0.5).open(context())


def test_kafka_brokers_that_are_silent_are_given_up() -> None:
    with between() as line:
        source = KafkaSource("numbers", bootstrap=f"127.0.0.1:{line.port}", connect_s=0.5)
        with pytest.raises(StoreUnreachableError, match=r"an answer within 0\.5 s"):
            source.discover()
        source.close()


async def ends_when_stopped(sink: Sink, waits: Callable[[], None]) -> None:
    """Stop a job once `waits`, in a thread, has returned."""
    effects = Effects()
    runner = JobRunner(copying([(n,) for n in range(50)], sink), MemoryStore(), config(), effects)
    running = asyncio.ensure_future(runner.run())
    await asyncio.to_thread(waits)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    effects.offload.close()


@pytest.mark.parametrize("kind", ["postgres", "iceberg"])
async def test_a_job_that_is_stopped_ends_whatever_does_not_answer(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it starts, with an hour to wait."""
    waiting, add = threading.Event(), outside.Wait.__init__

    def added(*args: Any) -> None:
        add(*args)
        waiting.set()

    monkeypatch.setattr(outside.Wait, "__init__", added)
    with between() as line:
        catalog = {"type": "rest", "uri": f"http://127.0.0.1:{line.port}"}
        address = f"host=127.0.0.1 port={line.port} connect_timeout=3600 sslmode=disable"
        sink: Sink = IcebergSink(catalog, "lake.numbers", answer_s=3600)
        if kind == "postgres":
            sink = PostgresSink(address, "numbers", COLUMNS, answer_s=3600)
        await ends_when_stopped(sink, lambda: waiting.wait() and None)


async def test_a_job_that_is_stopped_ends_while_a_statement_has_no_answer(
    through: str, line: Between, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting, stage = threading.Event(), "tidelog.connectors.sql.postgres._PostgresTables.stage"

    def silent(*_: Any) -> None:
        line.fall_silent()
        waiting.set()

    monkeypatch.setattr(stage, silent)
    sink = PostgresSink(through, "numbers", COLUMNS, answer_s=3600)
    await ends_when_stopped(sink, lambda: waiting.wait() and None)


def test_the_sink_of_kafka_is_opened_within_its_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    with between() as line:
        sink = KafkaSink("numbers", bootstrap=f"127.0.0.1:{line.port}")
        for module in ("topics", "producing"):
            name = f"tidelog.connectors.kafka.writing.{module}.PATIENCE_S"
            monkeypatch.setattr(name, 0.5)
        with pytest.raises(StoreUnreachableError):
            sink.open(context())


@pytest.mark.parametrize("exactly_once", [True, False])
def test_the_sink_of_kafka_says_soon_where_it_waits_and_why_it_gives_up(
    exactly_once: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    producing = "tidelog.connectors.kafka.writing.producing"
    for name, seconds in (("PATIENCE_S", 2.0), ("LATE_S", 1.0), ("_FIRST_S", 0.3)):
        monkeypatch.setattr(f"{producing}.{name}", seconds)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # where nobody listens, nor can begin to
        port = nobody.getsockname()[1]
        sink = KafkaSink("numbers", bootstrap=f"127.0.0.1:{port}", exactly_once=exactly_once)
        with pytest.raises(StoreUnreachableError, match=r"topic 'numbers' .* Connection refused"):
            sink.open(context())
    said = {
        getattr(record, "event", ""): record.getMessage()
        for record in reversed(caplog.records)  # the first of each is left
    }
    # A busy machine takes longer than the time after which it is said.
    assert f"Kafka at 127.0.0.1:{port} has no answer after " in said["outside_call_waits"]
    assert "Connection refused" in said["kafka_client_warned"]


@pytest.mark.parametrize("call", ["init_transactions", "commit_transaction", "consume"])
async def test_a_job_that_is_stopped_waits_for_no_transaction_of_kafka(
    call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor for the topics of its staging; what it waits for is in the log meanwhile."""
    monkeypatch.setattr(outside, "_SAY_S", 0.0)
    kafka, named, over = FakeKafka(), Named(), threading.Event()
    monkeypatch.setattr("tidelog.connectors.kafka.client.library", lambda: kafka.library)
    logging.getLogger(outside.__name__).addHandler(named)

    def silent(name: str, effect: Callable[[], Any]) -> Any:
        if call == name == "consume":
            over.wait(0.01)
            return []
        if call == name:
            over.wait()
        return effect()

    kafka.create("numbers")
    kafka.call = silent
    try:
        await ends_when_stopped(KafkaSink("numbers", bootstrap="kafka:9092"), named.wait)
    finally:
        over.set()
        logging.getLogger(outside.__name__).removeHandler(named)


class Named(logging.Handler):
    """Waits for a line of the log about a call that waits."""

    def __init__(self) -> None:
        super().__init__()
        self._came = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        assert "kafka:9092" in record.getMessage()
        self._came.set()

    def wait(self) -> None:
        assert self._came.wait(30), "nothing in the log says what the job waits for"
