"""Servers for tests, started once per run and shared."""

from collections.abc import Iterator

import pytest

from tests.wire import servers
from tests.wire.servers import CloudServer, S3Server


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


@pytest.fixture
def moto_by_s3fs(moto: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """moto, which s3fs sends requests to."""
    monkeypatch.setenv("TIDELOG__STORAGE__S3__CLIENT", "s3fs")
    return moto
