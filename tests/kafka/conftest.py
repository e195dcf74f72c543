"""Kafka for tests: one broker for all of a run, skipped with the reason where there can be none."""

import os
from collections.abc import Iterator

import pytest

from tests.support.kafka import Topics, reason_without, shared_broker
from tests.support.kafka_broker import Broker


def _skip_without() -> None:
    if (reason := reason_without()) is not None:
        pytest.skip(reason)


@pytest.fixture(scope="session")
def topics(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topics]:
    """Topics of the shared broker, which no test may stop."""
    _skip_without()
    base = tmp_path_factory.getbasetemp()
    directory = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    with shared_broker(directory / "kafka") as bootstrap:
        yield Topics(bootstrap)


@pytest.fixture(scope="session")
def _other_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    _skip_without()
    with Broker(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


@pytest.fixture
def broker(_other_broker: Broker) -> Broker:
    """One that a test may kill; it runs when the test begins."""
    _other_broker.start()
    return _other_broker


@pytest.fixture
def no_broker() -> str:
    """An address at which nobody answers."""
    return "127.0.0.1:1"
