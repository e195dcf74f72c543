"""A broker of Apache Kafka for tests: one process on the loopback interface.

Invariants: it may be killed at any moment and started again on the same data and the same ports;
it does not outlive the process that started it. Its jars are those of KAFKA_HOME, else fetched once
with Maven; their directory appears complete or not at all, so several processes may ask at once.
"""

import hashlib
import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Final, Self

import click

from tidelog.connectors.kafka.client import library
from tidelog.effects import SystemClock, cache_directory, hold_thread
from tidelog.errors import ConfigError, StoreUnreachableError
from tidelog.spark.plugin.toolchain import fitting_java

OLDEST_JAVA: Final = 17
HOME_VARIABLE: Final = "KAFKA_HOME"
KAFKA: Final = "4.1.1"

_POM: Final = """\
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>tidelog</groupId>
  <artifactId>kafka-broker</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId>
      <version>{kafka}</version>
    </dependency>
    <dependency>
      <groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId>
      <version>1.7.36</version>
    </dependency>
  </dependencies>
</project>
"""
_FETCH_S: Final = 600

_JVM: Final = (
    *("-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"),
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)
_CLUSTER: Final = "dGlkZWxvZy1leGFtcGxlcw"
"""A UUID as Kafka writes it; nothing else is ever in this cluster."""
_SETTINGS: Final = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "auto.create.topics.enable": "false",
    "num.network.threads": "2",
    "num.io.threads": "4",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    # Records have the times of their tests, which may be long ago or far ahead.
    "log.retention.ms": "-1",
    "log.message.timestamp.after.max.ms": str(2**63 - 1),
    # By default half of the heap.
    "log.cleaner.dedupe.buffer.size": str(4 << 20),
    # For so long after a kill the broker that starts is taken for a second one.
    "broker.session.timeout.ms": "1500",
    "broker.heartbeat.interval.ms": "500",
}
_START_S: Final = 120
_PORTS: Final = range(20_000, 30_000)
_WATCHED: Final = 'exec 3<&0; (read _ <&3; kill -9 $$) & exec "$@" <&- 3<&-'
"""A shell that becomes the broker, and leaves behind one that kills it when our end of the pipe to
its standard input is closed, by us or because we are gone."""


class Broker:
    """Kafka over a new directory; raises ConfigError when Java or Kafka are missing."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory.absolute()
        self._java = fitting_java(OLDEST_JAVA, "Kafka")
        self._classpath = os.pathsep.join(sorted(map(str, kafka_jars().glob("*.jar"))))
        of = hashlib.sha256(f"{self._java} {self._classpath}".encode()).hexdigest()[:16]
        self._classes = cache_directory() / "kafka" / f"classes-{of}.jsa"
        """Classes as a JVM maps them into memory."""
        self._process: subprocess.Popen[bytes] | None = None
        port, other = _free_ports()
        self.bootstrap = f"127.0.0.1:{port}"
        """Where clients find it, after every start."""
        quorum = f"127.0.0.1:{other}"
        self._settings = {
            **_SETTINGS,
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://{quorum}",
            "controller.quorum.voters": f"1@{quorum}",
            "log.dirs": str(self._directory / "data"),
        }

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def log(self) -> Path:
        """What the broker writes: warnings and errors."""
        return self._directory / "broker.log"

    def keep_classes(self) -> None:
        """Let all brokers start with two thirds of the CPU time from now on: keep the classes that
        this one, which is started and stopped for it, has loaded.
        """
        if not self._classes.exists():
            made = self._classes.with_name(f"{self._classes.name}-{os.getpid()}")
            self._start(f"-XX:ArchiveClassesAtExit={made}")
            self.wait()
            if self._process is not None:
                self._process.terminate()
                self._process.wait()
            self.kill()
            made.replace(self._classes)

    def start(self, *, wait: bool = True) -> None:
        """Start it unless it runs, and wait until it answers; raises StoreUnreachableError when it
        does not.
        """
        if self._process is None:
            self._start(f"-XX:SharedArchiveFile={self._classes}")
        if wait:
            self.wait()

    def _start(self, classes: str) -> None:
        properties = self._directory / "server.properties"
        if not properties.exists():
            self._directory.mkdir(parents=True, exist_ok=True)
            made = "".join(f"{name}={value}\n" for name, value in self._settings.items())
            properties.write_text(made)
            self._format(properties)
        command = self._command(classes, "kafka.Kafka", properties)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", _WATCHED, "broker", *command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for us
            )

    def wait(self) -> None:
        """Wait until it answers; raises StoreUnreachableError when it does not."""
        clock = SystemClock()
        give_up = clock.monotonic() + _START_S
        admin = admin_client(self.bootstrap)
        while self._process is not None and self._process.poll() is None:
            if _answers(admin):
                return
            if clock.monotonic() > give_up:
                break
            hold_thread(0.05)
        raise self._silent()

    def kill(self) -> None:
        """End it at once, as a machine that fails does."""
        if self._process is not None:
            self._process.kill()
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait()
            self._process = None

    def _format(self, properties: Path) -> None:
        command = self._command(
            "kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", properties
        )
        with self.log.open("wb") as log:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False
            )
        if done.returncode != 0:
            raise self._silent()

    def _command(self, *arguments: object) -> list[str]:
        # Warnings only: an option for the tool as for the broker.
        return [str(self._java), *_JVM, "-cp", self._classpath, *map(str, arguments)]

    def _silent(self) -> StoreUnreachableError:
        lines = self.log.read_text("utf-8", "replace").splitlines()
        written = [line for line in lines if not line.startswith("\tat ")]  # no stack of Java's
        return StoreUnreachableError(
            f"the broker of Kafka at {self.bootstrap}",
            expected=f"an answer within {_START_S} s of its start",
            found="; ".join(written[-5:]) or "none, and nothing in its log",
            action=f"see {self.log}",
        )


def admin_client(bootstrap: str) -> Any:
    """Kafka's own client for topics, which says nothing while the broker is away."""
    admin = library().admin
    return admin.AdminClient(
        {"bootstrap.servers": bootstrap, "log_level": 0, "reconnect.backoff.max.ms": 200}
    )


def _answers(admin: Any) -> bool:
    try:
        return bool(admin.list_topics(timeout=1).brokers)
    except library().KafkaException:
        return False


def _free_ports() -> tuple[int, int]:
    """Two ports that nothing listens on; none of those that the system gives to clients, so that
    they stay free while a broker is away.
    """
    first = _PORTS.start + os.getpid() * 2 % len(_PORTS)
    free = filter(_is_free, (*range(first, _PORTS.stop), *range(_PORTS.start, first)))
    return next(free), next(free)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def kafka_jars() -> Path:
    """The directory with the broker's jars; standard error gets a line before a download.

    Raises ConfigError.
    """
    home = os.environ.get(HOME_VARIABLE)
    if home:
        return _jars_of(Path(home))
    target = cache_directory() / "kafka" / f"kafka-{KAFKA}"
    if not target.is_dir():
        click.echo(f"fetching the broker of Apache Kafka {KAFKA} once, 43 MB ...", err=True)
        _fetch(target)
    return target


def _jars_of(home: Path) -> Path:
    for directory in (home / "libs", home):
        if any(directory.glob("kafka-server-[0-9]*.jar")):
            return directory
    raise ConfigError(
        f"environment variable {HOME_VARIABLE}",
        expected="the directory of an Apache Kafka 4, with kafka-server-*.jar in its libs",
        found=str(home),
        action="correct it, or unset it to have Kafka fetched",
    )


def _fetch(target: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise ConfigError(
            "Maven",
            expected="`mvn` on the PATH, to fetch Kafka's broker",
            found="none",
            action="install it (apt-get install maven), name a Kafka that is installed by "
            f"{HOME_VARIABLE}, or use a broker that runs",
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as scratch:
        (Path(scratch) / "pom.xml").write_text(_POM.format(kafka=KAFKA))
        jars = Path(scratch) / "jars"
        command = [maven, "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={jars}"]
        found = _failure(command, scratch)
        if found is not None:
            raise ConfigError(
                f"the jars of Apache Kafka {KAFKA}",
                expected="that Maven fetches them",
                found=found,
                action="see whether Maven reaches its repository, or name a Kafka that is "
                f"installed by {HOME_VARIABLE}",
            )
        try:
            jars.rename(target)
        except OSError:
            if not target.is_dir():  # otherwise another process was faster
                raise


def _failure(command: list[str], directory: str) -> str | None:
    """What went wrong with a command; None: nothing."""
    try:
        run = subprocess.run(
            command,
            cwd=directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            check=False,
            timeout=_FETCH_S,
        )
    except subprocess.TimeoutExpired:
        return f"no end after {_FETCH_S} s"
    lines = [line for line in run.stdout.splitlines() if "ERROR" in line]
    return None if run.returncode == 0 else f"exit code {run.returncode}: {' '.join(lines[:3])}"
