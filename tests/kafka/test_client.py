"""Clients of a Kafka cluster: settings, secrets, errors, logs.

The broker of tests and examples: what it needs, and that it leaves nothing running.
"""

import logging
import os
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.support.kafka import Topics, reason_without
from tests.support.kafka_broker import Broker, kafka_jars
from tidelog.connectors.kafka.client import Cluster, failures, library, translated
from tidelog.errors import (
    AccessDeniedError,
    ConfigError,
    ObjectNotFoundError,
    StorageError,
    StoreUnreachableError,
)
from tidelog.spark.plugin import toolchain

SECRET = "correct-horse-battery-staple"


def test_the_missing_library_is_an_error_that_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    monkeypatch.setitem(sys.modules, "confluent_kafka.admin", None)
    with pytest.raises(ConfigError, match=r"pip install 'tidelog\[kafka\]'"):
        library()


@pytest.mark.parametrize(
    "given, taken",
    [
        ("a:9092", "a:9092"),
        ("a:9092, b.example.org:9093", "a:9092,b.example.org:9093"),
        (["a:1", "[::1]:2"], "a:1,[::1]:2"),
        ("SSL://a:9092", "SSL://a:9092"),
    ],
)
def test_addresses_are_a_text_or_several(given: str | list[str], taken: str) -> None:
    assert Cluster(given).bootstrap == taken


@pytest.mark.parametrize("given", ["", [], "a:9092,,b:9092", "kafka://user:word@host:1", "a b"])
def test_what_is_no_address_is_an_error(given: str | list[str]) -> None:
    with pytest.raises(ConfigError, match="bootstrap; expected addresses of brokers"):
        Cluster(given)


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


def test_values_of_a_wrong_type_are_an_error() -> None:
    with pytest.raises(ConfigError, match="settings of a client of Kafka at a:9092"):
        Cluster("a:9092", {"session.timeout.ms": object()}).consumer({"group.id": "g"})
    with pytest.raises(ConfigError, match=r"session\.timeout\.ms"):
        Cluster("a:9092", {"session.timeout.ms": "soon"}).consumer({"group.id": "g"})


def test_the_users_settings_go_before_those_that_may_be_changed(topics: Topics) -> None:
    cluster = Cluster(topics.bootstrap, {"client.id": "mine", "max.poll.interval.ms": 7_000})
    # librdkafka refuses a session that is longer than the interval between polls.
    with pytest.raises(ConfigError, match=r"max\.poll\.interval\.ms"):
        cluster.consumer({"group.id": "g", "session.timeout.ms": 8_000})


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


def test_a_broker_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    reason = reason_without()
    if reason is not None:
        pytest.skip(reason)
    program = """
        import os, sys
        from pathlib import Path
        from tests.support.kafka_broker import Broker
        directory = Path(sys.argv[1])
        (directory / "server.properties").touch()  # it was started before
        broker = Broker(directory)
        broker._command = lambda *_: ["sleep", "1000"]
        broker.start(wait=False)
        print(broker._process.pid, flush=True)
        os.kill(os.getpid(), 9)
    """
    started = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    pid = int(started.stdout)
    while _runs(pid):  # the time limit of a test is the limit here
        pass


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_a_broker_that_does_not_start_is_an_error_with_what_it_wrote(tmp_path: Path) -> None:
    if reason_without() is not None:
        pytest.skip(str(reason_without()))
    broker = Broker(tmp_path / "kafka", {"num.io.threads": "many"})
    with pytest.raises(StoreUnreachableError) as error:
        broker.start()
    assert "many" in str(error.value) and "num.io.threads" in str(error.value)


def test_a_missing_maven_is_an_error_that_names_the_ways_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TIDELOG_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("KAFKA_HOME", raising=False)
    with pytest.raises(ConfigError, match=r"apt-get install maven.*KAFKA_HOME.*broker that runs"):
        kafka_jars(lambda _: None)


def test_a_maven_that_fails_is_quoted_and_nothing_is_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    maven = tmp_path / "mvn"
    maven.write_text("#!/bin/sh\nmkdir jars\necho '[ERROR] no route to the repository'\nexit 1\n")
    maven.chmod(maven.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("TIDELOG_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("KAFKA_HOME", raising=False)
    with pytest.raises(ConfigError, match=r"exit code 1: .ERROR. no route to the repository"):
        kafka_jars(lambda _: None)
    assert list((tmp_path / "cache" / "kafka").iterdir()) == []


def test_the_home_of_a_kafka_counts_if_it_is_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KAFKA_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match=r"KAFKA_HOME.*kafka-server-\*.jar"):
        kafka_jars()
    (tmp_path / "libs").mkdir()
    (tmp_path / "libs" / "kafka-server-4.1.1.jar").touch()
    assert kafka_jars() == tmp_path / "libs"


def test_an_old_or_missing_java_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(toolchain, "java_version", lambda _: 11)
    java = tmp_path / "java"
    java.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="version 17 or newer, as Kafka needs; found version 11"):
        Broker(tmp_path / "kafka")
    java.unlink()
    with pytest.raises(ConfigError, match="Java; expected version 17 or newer"):
        Broker(tmp_path / "kafka")
