"""A server, Hadoop's S3A client and a JVM, each started once and shared."""

import os
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

from tests.spark.s3a.access import AccessLog
from tests.spark.s3a.jars import s3a_jars as fetched
from tests.support.maven import JarsUnavailableError
from tests.wire import servers
from tests.wire.servers import S3Server
from tidelog.spark.plugin.jar import plugin_jar

ADVISED = {
    "fs.s3a.input.stream.type": "classic",
    "fs.s3a.performance.flags": "create,delete,mkdir",
}
"""Settings that save requests; nothing but their number depends on them."""


@dataclass(frozen=True)
class LoggedServer:
    """An S3 server and what it was asked."""

    server: S3Server
    log: AccessLog


@pytest.fixture(scope="session")
def s3a_jars() -> list[Path]:
    """Hadoop's S3A client; skipped, with the reason, where it cannot be had."""
    try:
        return fetched()
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
        yield LoggedServer(server, AccessLog(path))


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
