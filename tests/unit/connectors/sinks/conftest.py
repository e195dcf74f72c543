"""What sinks write to: a Kafka in memory."""

import pytest

from tests.support.fake_kafka import FakeKafka


@pytest.fixture
def fake_kafka(monkeypatch: pytest.MonkeyPatch) -> FakeKafka:
    """Stands in for Kafka's client library and the brokers behind it."""
    kafka = FakeKafka()
    monkeypatch.setattr("tidelog.connectors.kafka.client.library", lambda: kafka.library)
    return kafka
