"""A stateful query on an S3 checkpoint: exact through restarts, kills and a second driver."""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum, auto
from itertools import count
from pathlib import Path

import pytest

from tests.spark.s3a.census import census
from tests.spark.s3a.conftest import ADVISED, LoggedServer, s3a_options
from tests.spark.s3a.gate import Gate, put_of
from tests.spark.s3a.job import Driver, Job
from tests.wire.proxy import Behaviour, Exchange, proxy

_checkpoints = count()


@pytest.fixture
def prefix() -> str:
    """A checkpoint of its own for each test."""
    return f"checkpoint-{next(_checkpoints)}"


@pytest.fixture
def job(logged: LoggedServer, prefix: str, tmp_path: Path) -> Job:
    return Job(f"s3a://{logged.server.bucket}/{prefix}", tmp_path)


class Drivers:
    """Starts drivers of a job; none outlives the test."""

    def __init__(self, server: LoggedServer, jars: list[Path]) -> None:
        self._server = server
        self._jars = ",".join(map(str, jars))
        self._started: list[Driver] = []

    def start(self, job: Job, endpoint: str | None = None, *, run: bool = True) -> Driver:
        hadoop = s3a_options(self._server.server, endpoint) | ADVISED
        # A request that a gate holds is not to be given up. (A conditional PUT has the second.)
        hadoop |= {
            "fs.s3a.connection.timeout": "600s",
            "fs.s3a.connection.request.timeout": "600s",
        }
        settings = {f"spark.hadoop.{key}": value for key, value in hadoop.items()} | {
            "spark.jars": self._jars,
            "spark.driver.memory": "1g",
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "4",
            "spark.sql.streaming.stateStore.minDeltasForSnapshot": "3",
            "spark.sql.streaming.stateStore.maintenanceInterval": "1s",
        }
        self._started.append(job.start(settings, run=run))
        return self._started[-1]

    def kill_all(self) -> None:
        for driver in self._started:
            driver.kill()


@pytest.fixture
def drivers(logged: LoggedServer, s3a_jars: list[Path]) -> Iterator[Drivers]:
    drivers = Drivers(logged, s3a_jars)
    try:
        yield drivers
    finally:
        drivers.kill_all()


class Held(Enum):
    """What becomes of the request that a gate holds."""

    REFUSED = auto()
    """The store never sees it."""
    DONE = auto()
    """The store has done it before it is held; the answer is lost."""
    LATE = auto()
    """The store sees it when the gate opens."""


@contextmanager
def gated(logged: LoggedServer, gate: Gate, held: Held) -> Iterator[str]:
    """An endpoint before which a gate stands."""
    behaviour = Behaviour()

    def hold(exchange: Exchange) -> tuple[int, str] | None:
        refused = gate.hold(exchange) and held is Held.REFUSED
        return (403, "AccessDenied") if refused else None

    if held is Held.DONE:
        behaviour.lose_answer = gate.hold
    else:
        behaviour.error = hold
    with proxy(logged.server.endpoint, behaviour) as endpoint:
        try:
            yield endpoint
        finally:
            gate.open()


def test_a_query_restarts_from_s3_and_writes_each_object_once_and_never_by_copy(
    logged: LoggedServer, job: Job, drivers: Drivers, prefix: str
) -> None:
    before = len(logged.log.requests())

    job.add_files(5)
    assert drivers.start(job).outcome().state() == job.batch_count
    job.add_files(5)
    assert drivers.start(job).outcome().state() == job.batch_count
    assert drivers.start(job, run=False).outcome().state() == job.batch_count

    requests = logged.log.requests()[before:]
    assert not [each for each in requests if "Copy" in each.operation]
    written = [each.key for each in requests if each.operation == "PutObject"]
    assert len(written) == len(set(written))
    assert not [key for key in written if key.endswith(".changelog") or ".tmp" in key]
    found = census(logged.server, prefix)
    assert found.unexpected == []
    assert found.batches == {"offsets": list(range(10)), "commits": list(range(10))}
    assert found.segments == found.named


@pytest.mark.parametrize(
    ("place", "held"),
    [
        ("_tidelog/segments/", Held.REFUSED),
        ("commits/2", Held.REFUSED),
        ("commits/2", Held.DONE),
    ],
    ids=["before-a-segment-is-stored", "before-the-commit-is-stored", "after-that"],
)
def test_a_killed_driver_loses_nothing_and_counts_nothing_twice(
    logged: LoggedServer, job: Job, drivers: Drivers, prefix: str, place: str, held: Held
) -> None:
    job.add_files(4)
    gate = Gate(put_of(f"/{prefix}/{place}"))
    with gated(logged, gate, held) as endpoint:
        driver = drivers.start(job, endpoint)
        gate.await_driver()
        driver.kill()

    job.add_files(2)
    assert drivers.start(job).outcome().state() == job.batch_count

    found = census(logged.server, prefix)
    assert found.unexpected == []
    assert found.batches == {"offsets": list(range(6)), "commits": list(range(6))}
    assert found.segments == found.named


def test_of_two_drivers_on_a_checkpoint_the_slower_one_fails(
    logged: LoggedServer, job: Job, drivers: Drivers, prefix: str
) -> None:
    job.add_files(4)
    gate = Gate(put_of(f"/{prefix}/commits/2"))
    with gated(logged, gate, Held.LATE) as endpoint:
        slow = drivers.start(job, endpoint)
        gate.await_driver()
        assert drivers.start(job).outcome().state() == job.batch_count
        gate.open()
        failed = slow.outcome()

    assert failed.code != 0
    assert f"Multiple streaming queries are concurrently using {job.checkpoint}" in failed.err
    job.add_files(1)
    assert drivers.start(job).outcome().state() == job.batch_count
    assert census(logged.server, prefix).unexpected == []
