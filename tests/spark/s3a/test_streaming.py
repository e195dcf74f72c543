"""A stateful query on an S3 checkpoint: exact through restarts, kills, a second driver, and
whatever people do with a checkpoint's prefix.
"""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import count
from pathlib import Path
from threading import Event

import pytest

from tests.spark.s3a.conftest import ADVISED, LoggedServer, s3a_options
from tests.spark.support.application import LOCAL, Application, Job
from tests.spark.support.census import assert_complete
from tests.spark.support.place import Place
from tests.spark.support.running import add
from tests.spark.support.session import PATIENCE_S
from tests.spark.support.stores import EAGER, store_settings
from tests.spark.support.stories import run_apart
from tests.spark.support.zoo.aggregations import TOTALS
from tests.spark.support.zoo.query import events, single
from tests.wire.proxy import Behaviour, Exchange, proxy

_checkpoints = count()
BATCHES = single(events(seed=71, batches=10, per_batch=20))


@dataclass(frozen=True)
class Query:
    """A query that counts, with its checkpoint on S3; none of its drivers outlives a test."""

    logged: LoggedServer
    jars: list[Path]
    place: Place
    prefix: str = field(default_factory=lambda: f"checkpoint-{next(_checkpoints)}/checkpoint")

    def driver(self, endpoint: str | None = None, log_name: str = "driver.log") -> Application:
        url = f"s3a://{self.logged.server.bucket}/{self.prefix}"
        # A request that a gate holds is not to be given up. (A conditional PUT has the second.)
        patient = {
            "spark.hadoop.fs.s3a.connection.timeout": "600s",
            "spark.hadoop.fs.s3a.connection.request.timeout": "600s",
        }
        job = Job(self.place, TOTALS.name, checkpoint=url)
        given = settings(self.logged, self.jars, endpoint) | patient
        return Application((job,), given, log_name=log_name)

    def run(self) -> None:
        """A driver that takes all input there is."""
        with self.driver() as driver:
            driver.finish()

    def assert_right(self, batches: int, directory: Path) -> None:
        """The result is that of so many batches, and the checkpoint is complete."""
        assert TOTALS.result(self.place.rows()) == TOTALS.expected(BATCHES[:batches])
        server = self.logged.server
        with closing(server.client()) as client:
            pages = client.get_paginator("list_objects_v2").paginate(
                Bucket=server.bucket, Prefix=f"{self.prefix}/"
            )
            keys = [entry["Key"] for page in pages for entry in page.get("Contents", [])]
            assert not [key for key in keys if ".tmp" in key]
            for key in (key for key in keys if not key.endswith("/")):
                path = directory / key.removeprefix(f"{self.prefix}/")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(client.get_object(Bucket=server.bucket, Key=key)["Body"].read())
        assert_complete(directory)


def settings(logged: LoggedServer, jars: list[Path], endpoint: str | None = None) -> dict[str, str]:
    hadoop = s3a_options(logged.server, endpoint) | ADVISED
    given = store_settings() | EAGER
    given["spark.jars"] = ",".join([given["spark.jars"], *map(str, jars)])
    return given | {f"spark.hadoop.{key}": value for key, value in hadoop.items()}


@pytest.fixture
def query(logged: LoggedServer, s3a_jars: list[Path], place: Place) -> Query:
    return Query(logged, s3a_jars, place)


class Held(Enum):
    """What becomes of the request that a gate holds."""

    REFUSED = auto()
    """The store never sees it."""
    DONE = auto()
    """The store has done it before it is held; the answer is lost."""
    LATE = auto()
    """The store sees it when the gate opens."""


class Gate:
    """Holds the PUTs of objects whose path has a part, until the test opens the gate."""

    def __init__(self, part_of_path: str) -> None:
        self._part_of_path = part_of_path
        self._reached = Event()
        self._opened = Event()

    def hold(self, exchange: Exchange) -> bool:
        """Whether this request was held; returns when the gate is open."""
        if exchange.method != "PUT" or self._part_of_path not in exchange.path:
            return False
        self._reached.set()
        assert self._opened.wait(PATIENCE_S), "nobody opened the gate"
        return True

    def await_driver(self) -> None:
        assert self._reached.wait(PATIENCE_S), "no driver came to the gate"

    def open(self) -> None:
        self._opened.set()


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
    logged: LoggedServer, query: Query, tmp_path: Path
) -> None:
    before = len(logged.requests())
    for part in (BATCHES[:5], BATCHES[5:]):
        add(query.place, part)
        query.run()

    requests = logged.requests()[before:]
    assert not [each for each in requests if "Copy" in each.operation]
    written = [each.key for each in requests if each.operation == "PutObject"]
    assert len(written) == len(set(written))
    assert not [key for key in written if key.endswith(".changelog") or ".tmp" in key]
    query.assert_right(10, tmp_path / "objects")


@pytest.mark.parametrize(
    ("part_of_path", "held"),
    [
        ("/_tidelog/segments/", Held.REFUSED),
        ("/commits/2", Held.REFUSED),
        ("/commits/2", Held.DONE),
    ],
    ids=["before-a-segment-is-stored", "before-the-commit-is-stored", "after-that"],
)
def test_a_killed_driver_loses_nothing_and_counts_nothing_twice(
    logged: LoggedServer, query: Query, tmp_path: Path, part_of_path: str, held: Held
) -> None:
    add(query.place, BATCHES[:4])
    gate = Gate(f"/{query.prefix}{part_of_path}")
    with gated(logged, gate, held) as endpoint, query.driver(endpoint) as driver:
        gate.await_driver()
        driver.kill()

    add(query.place, BATCHES[4:6])
    query.run()
    query.assert_right(6, tmp_path / "objects")


def test_of_two_drivers_on_a_checkpoint_the_slower_one_fails(
    logged: LoggedServer, query: Query, tmp_path: Path
) -> None:
    add(query.place, BATCHES[:4])
    gate = Gate(f"/{query.prefix}/commits/2")
    with gated(logged, gate, Held.LATE) as endpoint, query.driver(endpoint) as slow:
        gate.await_driver()
        with query.driver(log_name="quick.log") as quick:
            quick.finish()
        gate.open()
        assert "Multiple streaming queries are concurrently using" in slow.fails()

    add(query.place, BATCHES[4:5])
    query.run()
    query.assert_right(5, tmp_path / "objects")


def test_every_story_of_a_directory_holds(
    logged: LoggedServer, s3a_jars: list[Path], tmp_path: Path
) -> None:
    url = f"s3a://{logged.server.bucket}/directories"
    run_apart(url, tmp_path, settings(logged, s3a_jars), LOCAL)
