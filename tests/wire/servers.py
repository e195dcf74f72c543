"""Servers of object stores with real sockets on this machine: S3 in its dialects, other clouds.

Run as a module, it makes the programs that have to be built, once, before any test waits for them.
"""

import json
import os
import shutil
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
from urllib.request import Request, urlopen

from tests.support.kafka import kept_classes
from tests.support.maven import JarsUnavailableError
from tests.support.ports import free_port
from tidelog.errors import ConfigError

# Imported within: libraries of the clouds, which take seconds; every worker imports this module.

TOOLS = Path(__file__).parents[2] / ".tools"
_VERSITYGW = ("github.com/versity/versitygw/cmd/versitygw", "v1.8.0")
"""A release whose conditional PUT is atomic on its POSIX back end; older ones check, then write."""
_FAKE_GCS = ("github.com/fsouza/fake-gcs-server", "v1.56.1")
_AZURITE = "3.35.0"
_PROMETHEUS = ("github.com/prometheus/prometheus/cmd", "v0.316.0")
_TARGETS_BY_FILE_ALONE = "remove_all_sd"
"""Without the clients of all clouds, in which Prometheus would look for targets."""
_PATIENCE_S = 900
_START_S = 300


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
            "region": self.region,
        }

    def client(self) -> Any:
        """A plain client, to look at the server past tidelog."""
        import boto3  # noqa: PLC0415

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


@dataclass(frozen=True)
class CloudServer:
    """A running server of another cloud, with one empty bucket."""

    scheme: str
    endpoint: str
    credentials: dict[str, Any]
    env: dict[str, str]
    """The environment that leads tidelog here."""
    bucket: str = "tide"

    def url(self, prefix: str) -> str:
        return f"{self.scheme}://{self.bucket}/{prefix}"

    @property
    def options(self) -> dict[str, Any]:
        """Storage options for `open_store`."""
        return {"endpoint_url": self.endpoint, **self.credentials}


@contextmanager
def moto_server() -> Iterator[S3Server]:
    """moto, in a thread of this process."""
    from moto.s3.models import FakeKey  # noqa: PLC0415
    from moto.server import ThreadedMotoServer  # noqa: PLC0415

    close = FakeKey.dispose

    def close_unused(key: Any, garbage: bool = False) -> None:
        # moto closes an object that is overwritten while a request may read it, and answers 500.
        key.disposed = True
        if garbage:
            close(key, garbage)

    FakeKey.dispose = close_unused
    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        endpoint = f"http://{host}:{port}"
        yield S3Server("moto", endpoint, "test", "test", honest=False).with_bucket()
    finally:
        server.stop()
        FakeKey.dispose = close


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


@contextmanager
def fake_gcs_server(binary: Path) -> Iterator[CloudServer]:
    """fake-gcs-server, in memory."""
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}"
    command = [str(binary), "-scheme", "http", "-host", "127.0.0.1", "-port", str(port)]
    with _running([*command, "-backend", "memory", "-log-level", "error"], port, {}):
        made = Request(
            f"{endpoint}/storage/v1/b?project=tests",
            data=json.dumps({"name": "tide"}).encode(),
            headers={"Content-Type": "application/json"},
        )
        urlopen(made, timeout=30).close()
        yield CloudServer("gs", endpoint, {"token": "anon"}, {"STORAGE_EMULATOR_HOST": endpoint})


_AZURITE_ACCOUNT = "devstoreaccount1"
_AZURITE_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
"""The key that every Azurite has."""


@contextmanager
def azurite_server(script: Path) -> Iterator[CloudServer]:
    """Azurite, in memory."""
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}/{_AZURITE_ACCOUNT}"
    command = ["node", str(script), "--blobHost", "127.0.0.1", "--blobPort", str(port)]
    flags = ["--inMemoryPersistence", "--silent", "--disableTelemetry", "--skipApiVersionCheck"]
    connection = (
        f"DefaultEndpointsProtocol=http;AccountName={_AZURITE_ACCOUNT};"
        f"AccountKey={_AZURITE_KEY};BlobEndpoint={endpoint};"
    )
    options = {"account_name": _AZURITE_ACCOUNT, "account_key": _AZURITE_KEY}
    with _running([*command, *flags], port, {}):
        from azure.storage.blob import BlobServiceClient  # noqa: PLC0415

        with BlobServiceClient.from_connection_string(connection) as client:
            client.create_container("tide")
        env = {"AZURE_STORAGE_CONNECTION_STRING": connection}
        yield CloudServer("az", endpoint, options, env)


@contextmanager
def _running(command: list[str], port: int, env: dict[str, str]) -> Iterator[None]:
    with subprocess.Popen(
        command, env={**os.environ, **env}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            _await_answer(process, port)
            yield
        finally:
            process.terminate()


def _await_answer(process: "subprocess.Popen[bytes]", port: int) -> None:
    give_up = monotonic() + _START_S
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
    return _built_by_go(*_VERSITYGW)


def fake_gcs_binary() -> Path:
    """The server's program, built on first use; raises ServerUnavailableError."""
    return _built_by_go(*_FAKE_GCS)


def prometheus_binary() -> Path:
    """The server's program, built on first use; raises ServerUnavailableError."""
    return _of_prometheus("prometheus")


def promtool_binary() -> Path:
    """The program that checks and tests rules; raises ServerUnavailableError."""
    return _of_prometheus("promtool")


def _of_prometheus(name: str) -> Path:
    installed = shutil.which(name)
    if installed is not None:
        return Path(installed)
    module, version = _PROMETHEUS
    return _built_by_go(f"{module}/{name}", version, f"-tags={_TARGETS_BY_FILE_ALONE}")


def azurite_script() -> Path:
    """The server's program for node, installed on first use; raises ServerUnavailableError."""
    directory = TOOLS / f"azurite-{_AZURITE}"
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        raise ServerUnavailableError("Azurite needs `node` and `npm`, which are not on the PATH")
    if not directory.exists():
        with _made_in_tools() as made:
            quiet = ["--no-audit", "--no-fund", "--silent"]
            package = f"azurite@{_AZURITE}"
            _run([npm, "install", *quiet, "--prefix", str(made), package], "Azurite")
            made.replace(directory)
    return directory / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"


def _built_by_go(module: str, version: str, *flags: str) -> Path:
    name = module.rpartition("/")[2]
    binary = TOOLS / f"{name}-{version}"
    if binary.exists():
        return binary
    go = shutil.which("go")
    if go is None:
        raise ServerUnavailableError(f"{name} has to be built and there is no `go` on the PATH")
    with _made_in_tools() as made:
        # Not optimised, and with a lazy garbage collector: 0.57 of the compiler's processor time.
        install = [go, "install", "-gcflags=all=-N -l -dwarf=false", "-ldflags=-s -w", *flags]
        _run([*install, f"{module}@{version}"], name, GOBIN=str(made), GOGC="400")
        (made / name).replace(binary)
    return binary


@contextmanager
def _made_in_tools() -> Iterator[Path]:
    """A directory beside what is to be made, whose content is moved when it is complete."""
    TOOLS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=TOOLS) as directory:
        made = Path(directory) / "made"
        made.mkdir()
        yield made


def _run(command: list[str], name: str, **env: str) -> None:
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **env},
            capture_output=True,
            text=True,
            check=False,
            timeout=_PATIENCE_S,
        )
    except subprocess.TimeoutExpired as error:
        raise ServerUnavailableError(f"{name} was not made in {_PATIENCE_S} s") from error
    if done.returncode != 0:
        raise ServerUnavailableError(f"{name} could not be made: {done.stderr[-500:]}")


if __name__ == "__main__":
    for server in (
        *(versitygw_binary, fake_gcs_binary, azurite_script, kept_classes),
        *(prometheus_binary, promtool_binary),
    ):
        try:
            print(server(), flush=True)
        except (ServerUnavailableError, JarsUnavailableError, ConfigError) as error:
            print(f"{error}; tests that need it are skipped", flush=True)
