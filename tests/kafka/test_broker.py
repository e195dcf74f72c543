"""The broker of the tests: what it needs, and that it leaves nothing running."""

import os
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.support.kafka import reason_without
from tests.support.kafka_broker import Broker, kafka_jars
from tidelog.errors import ConfigError, StoreUnreachableError
from tidelog.spark.plugin import toolchain


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
