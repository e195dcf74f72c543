"""S3 servers with real sockets on this machine, one of each dialect."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import boto3
from moto.server import ThreadedMotoServer

_TOOLS = Path(__file__).parents[2] / ".tools"
_VERSITYGW_VERSION = "v1.8.0"
"""A release whose conditional PUT is atomic on its POSIX back end; older ones check, then write."""


class ServerUnavailableError(Exception):
    """This machine cannot run the server; the message says why."""


@dataclass(frozen=True)
class S3Server:
    """A running server with one empty bucket.

    `honest` says that a create has one winner however many race; the other servers check and
    then write.
    """

    name: str
    endpoint: str
    key: str
    secret: str
    honest: bool
    bucket: str = "tide"
    region: str = "us-east-1"

    def url(self, prefix: str) -> str:
        return f"s3://{self.bucket}/{prefix}"

    @property
    def env(self) -> dict[str, str]:
        """The environment that leads any AWS client here."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.key,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_DEFAULT_REGION": self.region,
        }

    @property
    def options(self) -> dict[str, Any]:
        """Storage options for `open_store`."""
        return {
            "endpoint_url": self.endpoint,
            "key": self.key,
            "secret": self.secret,
            "client_kwargs": {"region_name": self.region},
        }

    def client(self) -> Any:
        """A plain client, to look at the server past tidelog."""
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=self.key,
            aws_secret_access_key=self.secret,
            region_name=self.region,
        )

    def with_bucket(self) -> "S3Server":
        with closing(self.client()) as client:
            client.create_bucket(Bucket=self.bucket)
        return self


@contextmanager
def moto_server() -> Iterator[S3Server]:
    """moto, in a thread of this process."""
    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        endpoint = f"http://{host}:{port}"
        yield S3Server("moto", endpoint, "test", "test", honest=False).with_bucket()
    finally:
        server.stop()


@contextmanager
def ministack_server() -> Iterator[S3Server]:
    """ministack, in a process of its own."""
    port = free_port()
    env = {
        "GATEWAY_PORT": str(port),
        "BIND_HOST": "127.0.0.1",
        "SERVICES": "s3",
        "LOG_LEVEL": "ERROR",
    }
    with _running([sys.executable, "-m", "ministack"], port, env):
        endpoint = f"http://127.0.0.1:{port}"
        yield S3Server("ministack", endpoint, "test", "test", honest=False).with_bucket()


@contextmanager
def versitygw_server(binary: Path) -> Iterator[S3Server]:
    """versitygw over a directory."""
    port = free_port()
    server = S3Server("versitygw", f"http://127.0.0.1:{port}", "writer", "sesame-open", honest=True)
    with tempfile.TemporaryDirectory() as root:
        address = f"127.0.0.1:{port}"
        command = [str(binary), "--port", address, "--quiet", "posix", root]
        env = {"ROOT_ACCESS_KEY": server.key, "ROOT_SECRET_KEY": server.secret}
        with _running(command, port, env):
            yield server.with_bucket()


def free_port() -> int:
    """A port that nothing listens on at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def _running(command: list[str], port: int, env: dict[str, str]) -> Iterator[None]:
    with subprocess.Popen(
        command,
        env={**os.environ, **env},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            _await_answer(process, port)
            yield
        finally:
            process.terminate()


def _await_answer(process: "subprocess.Popen[bytes]", port: int) -> None:
    give_up = monotonic() + 30
    while monotonic() < give_up and process.poll() is None:
        try:
            urlopen(f"http://127.0.0.1:{port}/", timeout=5).close()
        except HTTPError:
            return  # any answer will do
        except (URLError, OSError):
            sleep(0.05)
        else:
            return
    raise RuntimeError(f"{process.args!r} did not answer on port {port}")


def versitygw_binary() -> Path:
    """The server's program, built on first use; raises ServerUnavailableError."""
    binary = _TOOLS / f"versitygw-{_VERSITYGW_VERSION}"
    if not binary.exists():
        _build_versitygw(binary)
    return binary


def _build_versitygw(binary: Path) -> None:
    go = shutil.which("go")
    if go is None:
        raise ServerUnavailableError("versitygw has to be built and there is no `go` on the PATH")
    _TOOLS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=_TOOLS) as directory:
        module = f"github.com/versity/versitygw/cmd/versitygw@{_VERSITYGW_VERSION}"
        built = subprocess.run(
            [go, "install", module],
            env={**os.environ, "GOBIN": directory},
            capture_output=True,
            text=True,
            check=False,
        )
        if built.returncode != 0:
            raise ServerUnavailableError(f"versitygw could not be built: {built.stderr[-500:]}")
        (Path(directory) / "versitygw").replace(binary)
