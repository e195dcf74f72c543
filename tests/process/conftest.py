"""Servers for process tests: S3 (those without it use local directories) and PostgreSQL."""

from collections.abc import Iterator

import pytest

from tests.support import postgres
from tests.wire.servers import S3Server


@pytest.fixture(scope="session")
def s3(moto: S3Server) -> S3Server:
    return moto


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[postgres.Server]:
    reason = postgres.reason_without()
    if reason is not None:
        pytest.skip(reason)
    with postgres.server() as server:
        yield server
