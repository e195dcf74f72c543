"""A PostgreSQL server for the tests of its sink; without one they are skipped."""

from collections.abc import Iterator

import pytest

from tests.support import postgres


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[postgres.Server]:
    reason = postgres.reason_without()
    if reason is not None:
        pytest.skip(reason)
    with postgres.server() as server:
        yield server


@pytest.fixture
def conninfo(postgres_server: postgres.Server) -> str:
    """An empty database."""
    return postgres_server.database()
