"""What sinks write to: a PostgreSQL server, where there is one, and a Kafka in memory."""

from collections.abc import Iterator

import pytest

from tests.support import postgres
from tests.support.fake_kafka import FakeKafka


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[postgres.Server]:
    reason = postgres.reason_without()
    if reason is not None:
        pytest.skip(reason)
    with postgres.server() as server:
        yield server


@pytest.fixture
def conninfo(postgres_server: postgres.Server) -> str:
    """An empty database."""
    return postgres_server.database()


@pytest.fixture
def fake_kafka(monkeypatch: pytest.MonkeyPatch) -> FakeKafka:
    """Stands in for Kafka's client library and the brokers behind it."""
    kafka = FakeKafka()
    monkeypatch.setattr("tidelog.connectors.kafka.client.library", lambda: kafka.library)
    return kafka
