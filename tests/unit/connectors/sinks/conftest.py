"""What sinks write to: a Kafka in memory, and databases."""

from pathlib import Path

import pytest

from tests.support.fake_kafka import FakeKafka
from tests.unit.connectors.sinks.databases import Database


@pytest.fixture
def fake_kafka(monkeypatch: pytest.MonkeyPatch) -> FakeKafka:
    """Stands in for Kafka's client library and the brokers behind it."""
    kafka = FakeKafka()
    monkeypatch.setattr("tidelog.connectors.kafka.client.library", lambda: kafka.library)
    return kafka


@pytest.fixture
def lite(tmp_path: Path) -> Database:
    return Database("sqlite", tmp_path / "words.db")


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest) -> Database:
    if request.param == "sqlite":
        lite: Database = request.getfixturevalue("lite")
        return lite
    return Database("postgres", request.getfixturevalue("conninfo"))
