"""An S3 server for process tests; those without it use local directories."""

import logging
from collections.abc import Iterator

import pytest

from tests.wire.servers import S3Server, moto_server


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    with moto_server() as server:
        yield server
