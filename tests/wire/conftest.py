"""Servers for tests, started once per run and shared."""

from collections.abc import Iterator

import pytest

from tests.wire import servers
from tests.wire.calls import CLIENTS
from tests.wire.servers import CloudServer, S3Server
from tidelog.storage.config import S3Client


@pytest.fixture(scope="session")
def ministack() -> Iterator[S3Server]:
    with servers.ministack_server() as server:
        yield server


@pytest.fixture(params=["moto", "ministack", "versitygw"])
def s3_server(request: pytest.FixtureRequest) -> S3Server:
    """Each server in turn."""
    server: S3Server = request.getfixturevalue(request.param)
    return server


@pytest.fixture(params=["fake_gcs", "azurite"])
def cloud(request: pytest.FixtureRequest) -> CloudServer:
    """Each cloud beside S3 in turn."""
    server: CloudServer = request.getfixturevalue(request.param)
    return server


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> S3Client:
    """Each client of S3 in turn, chosen by the environment."""
    name: S3Client = request.param
    monkeypatch.setenv("TIDELOG__STORAGE__S3__CLIENT", name)
    return name


@pytest.fixture
def moto_by_s3fs(moto: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """moto, which s3fs sends requests to."""
    monkeypatch.setenv("TIDELOG__STORAGE__S3__CLIENT", "s3fs")
    return moto
