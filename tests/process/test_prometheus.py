"""A real Prometheus that scrapes a real job: every query of the dashboard and the alerts."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import tidelog
from tests.support.pipelines import running
from tests.support.prometheus import (
    QUERIES,
    RULES,
    Prometheus,
    Query,
    free_port,
    reason_without,
    server,
)
from tidelog import (
    CheckpointConfig,
    ForeachSink,
    Job,
    JobConfig,
    JobRunner,
    MaterializeConfig,
    RateSource,
    RestoreConfig,
    TextFileSource,
    UnalignedConfig,
)
from tidelog.effects import Effects
from tidelog.storage.memory import MemoryStore
from tidelog.storage.retry import RetryingStore
from tidelog.storage.retry_policy import LOCAL_POLICY

pytestmark = pytest.mark.skipif(reason_without() is not None, reason=str(reason_without()))

START_MS = 1_700_000_000_000
WINDOW = "5s"
"""For rates: more than two scrapes."""
ONLY_WHILE_RESTORING = {"Restore: Time left A"}
GIVE_UP_S = 90.0


def orders(notes: Path) -> Job:
    """A job that counts numbers, and copies the lines of files nowhere."""
    job = Job("orders")
    job.source(TextFileSource(notes, follow=True), name="notes").sink(
        ForeachSink(lambda line: None)
    )
    numbers = job.source(RateSource(500)).event_time(lambda n: START_MS + n)
    sums = numbers.key_by(lambda n: n % 50).aggregate(lambda n: 1, lambda a, b: a + b)
    sums.sink(ForeachSink(lambda record: None))
    return job


class Scraped:
    """A job that was restored, and what a Prometheus found of it until all queries answered."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.effects = Effects()
        inner = MemoryStore("memory://scraped")
        self.store = RetryingStore(inner, LOCAL_POLICY, self.effects)
        self.found: dict[str, list[Any]] = {}
        """What each query found, asked until it found something."""
        self.rules: list[Any] = []
        self.notes = directory / "notes"
        self.notes.mkdir()
        (self.notes / "first.txt").write_text("a line\n")
        self.config = JobConfig(
            work_dir=directory / "work",
            parallelism=2,
            checkpoint=CheckpointConfig(interval=0.2),
            materialize=MaterializeConfig(interval=0.5),
            unaligned=UnalignedConfig("always"),
            local_recovery=directory / "copies",
            restore=RestoreConfig(begin="at-once", whole_bytes=0),
        )

    async def run(self) -> None:
        await self._until(self._materialized)
        with tidelog.serve_metrics(port := free_port()) as update:
            asking = asyncio.ensure_future(asyncio.to_thread(self._ask, port))
            await self._until(asking.done, update)
            asking.result()

    async def _until(self, over: Any, update: Any = lambda status: None) -> None:
        """Run the job until then, from where it was."""
        self.runner = JobRunner(orders(self.notes), self.store, self.config, self.effects)
        async with running(self.runner) as task:
            while not over():
                assert not task.done(), task
                update(tidelog.status_of(self.runner))
                await asyncio.wait([task], timeout=0.05)

    def _materialized(self) -> bool:
        status = tidelog.status_of(self.runner)
        return status.materializations.completed >= 4 and status.checkpoints.completed >= 4

    def _ask(self, port: int) -> None:
        clock = self.effects.clock
        with server(self.directory, port) as prometheus:
            deadline = clock.monotonic() + GIVE_UP_S
            while clock.monotonic() < deadline:
                with suppress(OSError):  # not up yet
                    self._look(prometheus)
                if not missing(self.found) and evaluated(self.rules):
                    break
                time.sleep(0.5)  # meanwhile there is something new to find

    def _look(self, prometheus: Prometheus) -> None:
        for each in QUERIES:
            if not self.found.get(each.where):
                self.found[each.where] = prometheus.samples(each.over(WINDOW))
        groups = prometheus.get("rules")["groups"]
        self.rules = [rule for group in groups for rule in group["rules"]]


def missing(found: dict[str, list[Any]]) -> list[str]:
    """Queries of panels without a sample; those of alerts have none when all is well."""
    alerts = {rule["alert"] for rule in RULES} | {"Starts"}
    wanted = [each.where for each in QUERIES if each.where not in alerts | ONLY_WHILE_RESTORING]
    return [where for where in wanted if not found.get(where)]


def evaluated(rules: list[Any]) -> bool:
    return bool(rules) and all(rule["health"] == "ok" for rule in rules)


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraped]:
    job = Scraped(tmp_path_factory.mktemp("scraped"))
    asyncio.run(job.run())
    yield job
    job.effects.offload.close()


def test_every_query_of_the_dashboard_finds_something_in_a_running_job(scraped: Scraped) -> None:
    assert missing(scraped.found) == []


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.where)
def test_every_sample_has_the_labels_that_its_legend_shows(scraped: Scraped, query: Query) -> None:
    for sample in scraped.found[query.where]:
        assert set(query.shown) <= set(sample["metric"])
        assert sample["metric"]["job_name"] == "orders"


def test_every_alert_is_evaluated_without_an_error(scraped: Scraped) -> None:
    assert {rule["name"]: rule.get("lastError", "") for rule in scraped.rules} == {
        rule["alert"]: "" for rule in RULES
    }
    assert [rule["name"] for rule in scraped.rules if rule["state"] == "firing"] == []
