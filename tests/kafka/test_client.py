"""Clients of a Kafka cluster: settings, secrets, errors, logs."""

import logging
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from tidelog import KafkaSource
from tidelog.connectors.kafka.client import Cluster, failures, library, translated
from tidelog.errors import (
    AccessDeniedError,
    ConfigError,
    ObjectNotFoundError,
    StorageError,
    StoreUnreachableError,
)

SECRET = "correct-horse-battery-staple"


def test_the_missing_library_is_an_error_that_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    monkeypatch.setitem(sys.modules, "confluent_kafka.admin", None)
    with pytest.raises(ConfigError, match=r"pip install 'tidelog\[kafka\]'"):
        library()


@pytest.mark.parametrize("name", ["sasl.password", "ssl.key.pem", "ssl.key.password"])
def test_no_error_and_no_log_shows_a_secret(name: str, caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster("a:9092", {name: SECRET, "no.such.setting": SECRET})
    with pytest.raises(ConfigError) as error:
        cluster.consumer({"group.id": "g"})
    assert "no.such.setting" in str(error.value) and "CONFIGURATION.md" in str(error.value)
    assert SECRET not in str(error.value)
    assert SECRET not in str(StorageError(f"it was {SECRET}", action="nothing"))
    with caplog.at_level(logging.DEBUG, "tidelog"):
        from tidelog.connectors.kafka.client import _LibraryLog  # noqa: PLC0415

        _LibraryLog().log(logging.ERROR, "%s [%s]: %s", "FAIL", "rdkafka", f"key {SECRET}")
    assert "librdkafka: FAIL [rdkafka]: key ***" in caplog.text and SECRET not in caplog.text


def test_what_tidelog_sets_cannot_be_set_otherwise() -> None:
    with pytest.raises(ConfigError, match=r"'bootstrap.servers'.*use bootstrap="):
        Cluster("a:9092", {"bootstrap.servers": "b:9092"})
    with pytest.raises(ConfigError, match=r"'group.id'.*use group="):
        Cluster("a:9092", {"group.id": "mine"}, fixed={"group.id": "group="})


def test_nobody_at_the_address_is_an_error_that_says_so_and_is_logged(
    no_broker: str, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = Cluster(no_broker)
    client = cluster.consumer({"group.id": "g"})
    with pytest.raises(StoreUnreachableError) as error, failures("topic 'orders'", cluster):
        client.list_topics(timeout=0.2)
    client.poll(0.2)
    client.close()
    assert "topic 'orders' in Kafka at 127.0.0.1:1" in str(error.value)
    assert "a retry is safe" in str(error.value)
    warned = [r for r in caplog.records if getattr(r, "event", "") == "kafka_client_warned"]
    assert warned and "Connection refused" in warned[0].getMessage()


@pytest.mark.parametrize(
    "name, kind",
    [
        ("_ALL_BROKERS_DOWN", StoreUnreachableError),
        ("SASL_AUTHENTICATION_FAILED", AccessDeniedError),
        ("TOPIC_AUTHORIZATION_FAILED", AccessDeniedError),
        ("UNKNOWN_TOPIC_OR_PART", ObjectNotFoundError),
        ("MSG_SIZE_TOO_LARGE", StorageError),
        ("_BAD_MSG", StorageError),
    ],
)
def test_an_error_names_what_failed_and_what_to_do(name: str, kind: type[StorageError]) -> None:
    kafka_error = library().KafkaError(getattr(library().KafkaError, name), "as it says")
    error = translated(kafka_error, "topic 'a', partition 3, offset 17", Cluster("b:9092"))
    assert type(error) is kind
    assert "topic 'a', partition 3, offset 17 in Kafka at b:9092; found as it says" in str(error)
    assert f"({name})" in str(error) and error.action


def test_a_partition_that_a_topic_lacks_is_no_missing_topic() -> None:
    lacking = library().KafkaError(library().KafkaError._UNKNOWN_PARTITION)
    assert "create the topic" not in str(translated(lacking, "a message", Cluster("b:9092")))


def test_a_topic_that_the_user_may_not_see_is_not_said_to_be_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kinds = library().KafkaError
    refused = kinds(kinds.TOPIC_AUTHORIZATION_FAILED, "not for you")
    seen = SimpleNamespace(topics={"a": SimpleNamespace(error=refused, partitions={})})
    client: Any = SimpleNamespace(list_topics=lambda *_, **__: seen, poll=lambda _: None)
    monkeypatch.setattr(Cluster, "consumer", lambda *_: client)
    monkeypatch.setattr("tidelog.connectors.kafka.reading.source._SETTLE_S", 0.0)
    with pytest.raises(AccessDeniedError, match="let the user have the permission"):
        KafkaSource("a", bootstrap="b:9092").discover()
