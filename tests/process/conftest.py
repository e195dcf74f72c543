"""Servers for process tests: S3 (those without it use local directories) and PostgreSQL."""

import logging
from collections.abc import Iterator

import pytest

from tests.support import postgres
from tests.wire.servers import S3Server, moto_server


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    with moto_server() as server:
        yield server


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[postgres.Server]:
    reason = postgres.reason_without()
    if reason is not None:
        pytest.skip(reason)
    with postgres.server() as server:
        yield server
