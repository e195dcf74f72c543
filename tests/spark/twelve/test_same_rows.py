"""Jobs give the same rows on both engines, though they are killed or change the engine.

A process runs the commands of all jobs, one after the other: a start of Spark takes longer than a
job. Outside of deep runs these are some jobs, on one Spark in one process.
"""

import os
import shutil
from collections import Counter
from dataclasses import dataclass, field
from itertools import islice, product
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.kafka.conftest import topics
from tests.spark.handover.embedded import finished, stopped
from tests.spark.kafka.conftest import source_jars
from tests.spark.support.application import CLUSTER, LOCAL, Application, settings
from tests.spark.support.application import Job as Query
from tests.spark.support.place import Place
from tests.spark.support.versions import SparkVersion, other_version, this_version
from tests.spark.twelve.outside import Files, Part, Table, Topic, complete, parts
from tests.support.depth import DEEP
from tidelog import Job, JobArguments
from tidelog.cli.run.definition import load_job

__all__ = ["topics"]

# A deep run kills each of fourteen jobs twice in one test.
pytestmark = [pytest.mark.usefixtures("spark_or_skip"), pytest.mark.timeout(7200)]

FILE: Final = Path(__file__).with_name("job.py")
SIDES: Final = ("left", "right")


class Tried(NamedTuple):
    job: str
    sources: tuple[str, ...] = ("source",)
    directory: str = "."
    """The directory above those of all sources, which the job is given as its input."""
    updates: bool = False
    """Whether a job emits a key again with a greater value: the last one of a key is compared."""


JOBS: Final = {
    "wordcount": Tried("wordcount", directory="source", updates=True),
    "revenue": Tried(f"{FILE}:revenue", updates=True),
    "sessions": Tried(f"{FILE}:sessions"),
    "tumbling": Tried(f"{FILE}:tumbling"),
    "sliding": Tried(f"{FILE}:sliding"),
    "top": Tried(f"{FILE}:top"),
    "deduplicate": Tried(f"{FILE}:deduplicate"),
    "join": Tried(f"{FILE}:join", SIDES),
    "enrich": Tried(f"{FILE}:enrich", SIDES),
    "processor": Tried(f"{FILE}:processor"),
    "topics": Tried(f"{FILE}:topics"),
    "table": Tried(f"{FILE}:table"),
    "visits": Tried("sessions", directory="source"),
    "outages": Tried("tidelog.examples.outages:job", directory="source"),
}
MOMENTS: Final = ("offsets/0", "commits/0")
"""A driver is killed as soon as these files are in the checkpoint."""
MASTERS: Final = {"local": LOCAL, "cluster": CLUSTER}
VERSIONS: Final = {"4.3": "4.2.0", "4.1": "4.1.1"}
"""Of Spark, and of its source for Kafka that is tried with it."""
THIS: Final = "4.3"
CHOSEN: Final = "TIDELOG_TEST_JOBS"
"""Names of jobs, with commas between them: a deep run tries no others."""
USUAL: Final = [
    (THIS, "local", "half-killed", ("processor",)),
    (THIS, "local", "back", ("topics", "table", "join", "sessions")),
]


@dataclass
class Journey:
    """A job on its way from engine to engine."""

    tried: Tried
    outside: Files
    origin: list[str] = field(default_factory=list, init=False)
    records: int = field(default=0, init=False)
    """Of its input so far."""

    def add(self, part: Part) -> None:
        self.records += self.outside.add(part)

    def job(self, output: str, *, follow: bool) -> Job:
        """The job, to run embedded."""
        where = (str(self.input), str(self.directory / output), "*", follow)
        return load_job(self.tried.job, JobArguments(*where, self.outside.own(output)))

    def query(self) -> list[str]:
        """The command that handles what is there on Spark."""
        own = self.outside.own("out")
        return [
            *("spark", "run", self.tried.job, *self.origin, *self.outside.options),
            *("--checkpoint", str(self.outside.place.checkpoint), "--available-now", "--follow"),
            *("--input", str(self.input), "--output", str(self.directory / "out")),
            *(("--", *own) if own else ()),
        ]

    def savepoint(self) -> list[str]:
        """The command by which the query returns."""
        checkpoint = str(self.outside.place.checkpoint)
        return ["spark", "savepoint", checkpoint, "--to", f"{self.store}@back"]

    def rows(self, output: str) -> Counter[str]:
        """What was written, but for what the last record has made."""
        rows = self.outside.rows(output)
        if self.tried.updates:
            rows = list({row[0]: row for row in sorted(rows)}.values())
        return complete(rows)

    @property
    def directory(self) -> Path:
        return self.outside.place.root

    @property
    def input(self) -> Path:
        return self.outside.place.source(self.tried.directory)

    @property
    def store(self) -> Path:
        return self.directory / "store"


@dataclass
class Journeys:
    """Several of them, side by side, with a Spark for all."""

    all: list[Journey]
    place: Place
    spark: SparkVersion
    master: str
    settings: dict[str, str]

    def embedded(self) -> None:
        """Handle what is there, and stop."""
        for journey in self.all:
            stopped(journey.job("out", follow=True), journey.store, journey.records)
            journey.origin = ["--from", f"{journey.store}@halt"]

    def on_spark(self) -> None:
        self._run([journey.query() for journey in self.all])

    def killed(self) -> None:
        """On Spark, with a kill of each query at both moments; one of them is finished by the
        process that is killed in the next one.
        """
        commands = [journey.query() for journey in self.all]
        for number, journey in enumerate(self.all):
            for moment, first in zip(MOMENTS, (max(number - 1, 0), number), strict=True):
                with self._process(commands[first:]) as process:
                    process.await_file(journey.outside.place.checkpoint / moment)
                    process.kill_driver()
            # The query has all of it in its own state.
            shutil.rmtree(journey.store, ignore_errors=True)
        self._run(commands[-1:])

    def back(self) -> None:
        """Embedded, to the end of the input, with the state of the queries."""
        self._run([journey.savepoint() for journey in self.all])
        for journey in self.all:
            finished(journey.job("out", follow=False), journey.store)

    def _run(self, commands: list[list[str]]) -> None:
        with self._process(commands) as process:
            process.finish()

    def _process(self, commands: list[list[str]]) -> Application:
        return Application(
            (Query(self.place, "commands"),),
            self.settings,
            self.master,
            self.spark.python,
            module="tests.spark.twelve.commands",
            extra={"commands": commands},
        )


PATHS: Final = {
    "uninterrupted": {Journeys.on_spark: 3},
    "killed": {Journeys.killed: 3},
    "half": {Journeys.embedded: 1, Journeys.on_spark: 2},
    "half-killed": {Journeys.embedded: 1, Journeys.killed: 2},
    "back": {Journeys.embedded: 1, Journeys.on_spark: 1, Journeys.back: 1},
}
"""Where how many parts of the input are handled."""


@pytest.fixture
def journeys(
    version: str, master: str, names: tuple[str, ...], place: Place, request: pytest.FixtureRequest
) -> Journeys:
    spark = this_version() if version == THIS else other_version(version)
    given = {**settings(place.root / "faults", spark.home), "spark.sql.shuffle.partitions": "2"}
    if "topics" in names:
        given["spark.jars"] += f",{source_jars(VERSIONS[version])}"
    journeys = []
    for name in names:
        tried, own = JOBS[name], Place(place.root / name)
        if name == "topics":
            outside: Files = Topic(own, request.getfixturevalue("topics"))
        elif name == "table":
            outside = Table(own, request.getfixturevalue("postgres_server"))
        else:
            outside = Files(own, tried.sources)
        journeys.append(Journey(tried, outside))
    return Journeys(journeys, place, spark, MASTERS[master], given)


def cases() -> list[tuple[str, str, str, tuple[str, ...]]]:
    if not DEEP:
        return USUAL
    names = tuple(os.environ.get(CHOSEN, ",".join(JOBS)).split(","))
    return [(*case, names) for case in product(VERSIONS, MASTERS, PATHS)]


@pytest.mark.parametrize(("version", "master", "path", "names"), cases())
def test_jobs_give_the_same_rows_on_both_engines(path: str, journeys: Journeys) -> None:
    given = iter(parts())
    for step, number in PATHS[path].items():
        for part in islice(given, number):
            for journey in journeys.all:
                journey.add(part)
        step(journeys)
    wrong = {}
    for journey in journeys.all:
        finished(journey.job("expected", follow=False), journey.directory / "expected-store")
        expected, rows = journey.rows("expected"), journey.rows("out")
        assert expected, journey.tried.job
        if rows != expected:
            wrong[journey.tried.job] = {"missing": expected - rows, "more": rows - expected}
    assert not wrong
