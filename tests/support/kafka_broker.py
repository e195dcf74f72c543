"""A broker of Apache Kafka for tests: one process on the loopback interface.

Invariants: it may be killed at any moment and started again on the same data and the same ports;
it does not outlive the process that started it. Its jars are fetched once, with Maven.
"""

import hashlib
import os
import secrets
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self

from tests.support.maven import fetched
from tidelog.connectors.kafka.client import library
from tidelog.effects import SystemClock, cache_directory, hold_thread
from tidelog.errors import StoreUnreachableError
from tidelog.spark.plugin.toolchain import fitting_java

OLDEST_JAVA: Final = 17
KAFKA: Final = "4.1.1"

_POM: Final = Path(__file__).parents[1] / "kafka" / "pom.xml"
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
USER: Final = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "writer",
    "sasl.password": "a-password",
}
_LOGIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
_GUARDED: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,"
    "SASL_PLAINTEXT:SASL_PLAINTEXT",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{_LOGIN} required "
    f'user_{USER["sasl.username"]}="{USER["sasl.password"]}";',
}
_START_S: Final = 120
_PORTS: Final = range(20_000, 30_000)
_WATCHED: Final = 'exec 3<&0; (read _ <&3; kill -9 $$) & exec "$@" <&- 3<&-'
"""A shell that becomes the broker, and leaves behind one that kills it when our end of the pipe to
its standard input is closed, by us or because we are gone."""


class Broker:
    """Kafka over a new directory; raises ConfigError without Java, JarsUnavailableError without
    Kafka.
    """

    def __init__(self, directory: Path, *, guarded: bool = False) -> None:
        """`guarded`: at `guarded_bootstrap` the user of `USER` has the rights that he is given;
        who comes without a name may do everything.
        """
        self._directory = directory.absolute()
        self._java = fitting_java(OLDEST_JAVA, "Kafka")
        self._classpath = os.pathsep.join(sorted(map(str, kafka_jars().glob("*.jar"))))
        of = hashlib.sha256(f"{self._java} {self._classpath}".encode()).hexdigest()[:16]
        self._classes = cache_directory() / "kafka" / f"classes-{of}.jsa"
        """Classes as a JVM maps them into memory."""
        self._process: subprocess.Popen[bytes] | None = None
        port, other, third = _free_ports()
        self.bootstrap = f"127.0.0.1:{port}"
        """Where clients find it, after every start."""
        quorum = f"127.0.0.1:{other}"
        self._settings = {
            **_SETTINGS,
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://{quorum}",
            "controller.quorum.voters": f"1@{quorum}",
            "log.dirs": str(self._directory / "data"),
        }
        self.guarded_bootstrap = f"127.0.0.1:{third}"
        if guarded:
            self._settings |= _GUARDED
            self._settings["listeners"] += f",SASL_PLAINTEXT://{self.guarded_bootstrap}"

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
                self._process.wait(_START_S)
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

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        """As a machine that is suspended does: it takes connections, and answers nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

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


def _free_ports() -> tuple[int, int, int]:
    """Three ports that nothing listens on; none of those that the system gives to clients, so that
    they stay free while a broker is away.
    """
    first = secrets.choice(_PORTS)  # others may start brokers at the same moment
    free = filter(_is_free, (*range(first, _PORTS.stop), *range(_PORTS.start, first)))
    return next(free), next(free), next(free)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def kafka_jars() -> Path:
    """The directory with the broker's jars; raises JarsUnavailableError."""
    directory = cache_directory() / "kafka" / f"kafka-{KAFKA}"
    return fetched(_POM, directory, kafka_version=KAFKA)
