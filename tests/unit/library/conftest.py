"""A store of a test's own, and programs that open it."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tidelog
from tidelog import CheckpointConfig, Database, JobConfig, ListState, MapState, Sink, ValueState

STATES: dict[str, Any] = {
    "total": ValueState(int),
    "seen": MapState(str, int),
    "names": ListState(str),
}
OFTEN = JobConfig(checkpoint=CheckpointConfig(interval=0.02))
NEVER = JobConfig(checkpoint=CheckpointConfig(interval=1e6))


class Broken(Exception):
    """What a program breaks off with."""


@pytest.fixture
def url(tmp_path: Path) -> str:
    return str(tmp_path / "store")


def opened(
    url: str, config: JobConfig = NEVER, sinks: dict[str, Sink] | None = None, **states: Any
) -> Database:
    return tidelog.open(url, state=states or STATES, config=config, sinks=sinks)


def in_threads(*calls: Callable[[], object]) -> None:
    """Make these calls, each in a thread of its own, and wait for their end."""
    threads = [threading.Thread(target=each) for each in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
