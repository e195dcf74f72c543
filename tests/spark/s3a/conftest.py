"""A server, Hadoop's S3A client and a JVM, each started once and shared."""

import os
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import py4j.java_gateway
import py4j.protocol
import pytest
from pyspark import SparkConf
from pyspark.java_gateway import launch_gateway

from tests.support.maven import JarsUnavailableError, jars_of
from tests.wire import servers
from tests.wire.servers import S3Server
from tidelog.spark.plugin.check import hadoop_version
from tidelog.spark.plugin.jar import plugin_jar
from tidelog.spark.plugin.toolchain import find_spark

_POM = Path(__file__).parent / "pom.xml"
_AWS_SDK = {"3.4.2": "2.29.52", "3.5.0": "2.35.4"}
"""The SDK that each version of Hadoop was released with."""
_LINE = re.compile(r".*?\] \S+ \S+ \S+ s3_(?P<operation>\S+) (?P<key>\S+) \S+ (?P<status>\d+) ")

ADVISED = {"fs.s3a.input.stream.type": "classic", "fs.s3a.performance.flags": "create,delete,mkdir"}
"""Settings that save requests; nothing but their number depends on them."""


@dataclass(frozen=True)
class Request:
    """One request about an object: the name of the operation, the object's key, the answer."""

    operation: str
    key: str
    status: int


@dataclass(frozen=True)
class LoggedServer:
    """An S3 server and its access log, which has a request before it is answered."""

    server: S3Server
    log: Path

    def requests(self) -> list[Request]:
        """All requests so far, oldest first."""
        matches = map(_LINE.match, self.log.read_text().splitlines())
        return [Request(m["operation"], m["key"], int(m["status"])) for m in matches if m]

    def about(self, key: str) -> list[tuple[str, int]]:
        """Operations on one object, with their answers."""
        return [(each.operation, each.status) for each in self.requests() if each.key == key]

    def operations(self, since: int = 0) -> Counter[str]:
        """How often each operation was asked for, leaving out the first `since` requests."""
        return Counter(each.operation for each in self.requests()[since:])


@pytest.fixture(scope="session")
def s3a_jars() -> list[Path]:
    """Hadoop's S3A client; skipped, with the reason, where it cannot be had."""
    jars = [path.name for path in (find_spark().home / "jars").glob("hadoop-client-api-*.jar")]
    version = ".".join(map(str, hadoop_version(jars) or ()))
    if version not in _AWS_SDK:
        pytest.skip(f"no AWS SDK is known for the Hadoop of this Spark: {jars}")
    try:
        return jars_of(
            _POM, f"s3a-{version}", hadoop_version=version, aws_sdk_version=_AWS_SDK[version]
        )
    except JarsUnavailableError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoggedServer]:
    """An honest server that logs; skipped, with the reason, where it cannot run."""
    path = tmp_path_factory.mktemp("versitygw") / "access.log"
    try:
        binary = servers.versitygw_binary()
    except servers.ServerUnavailableError as error:
        pytest.skip(str(error))
    with ExitStack() as stack:
        with patch.dict(os.environ, VGW_ACCESS_LOG=str(path)):
            server = stack.enter_context(servers.versitygw_server(binary))
        yield LoggedServer(server, path)


@pytest.fixture(scope="session")
def jvm(s3a_jars: list[Path]) -> Iterator[Any]:
    """A JVM with the plug-in and S3A, and no query."""
    jars = ":".join(map(str, [plugin_jar(), *s3a_jars]))
    conf = SparkConf(loadDefaults=False)
    conf.set("spark.driver.extraClassPath", jars).set("spark.driver.memory", "512m")
    gateway = launch_gateway(conf)
    try:
        yield gateway.jvm
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait()


@pytest.fixture(autouse=True)
def _errors_of_this_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once this process has had a session, pyspark has py4j ask that session's JVM about every
    error; the JVM of these tests is another.
    """
    monkeypatch.setattr(py4j.java_gateway, "get_return_value", py4j.protocol.get_return_value)


def s3a_options(server: S3Server, endpoint: str | None = None) -> dict[str, str]:
    """Hadoop settings that lead S3A to a server, or to a proxy before it."""
    return {
        "fs.s3a.endpoint": endpoint or server.endpoint,
        "fs.s3a.endpoint.region": server.region,
        "fs.s3a.access.key": server.key,
        "fs.s3a.secret.key": server.secret,
        "fs.s3a.path.style.access": "true",
        "fs.s3a.connection.ssl.enabled": "false",
    }
