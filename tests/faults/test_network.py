"""S3 over a network that fails, with keys that do not fit, without conditional writes."""

import asyncio
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from tests.faults.counting import EXPECTED, POISON, WORDS, counting, settings
from tests.support.depth import more_in_depth
from tests.support.pipelines import Outside, Portions
from tests.wire.proxy import Behaviour, proxy
from tests.wire.servers import S3Server
from tidelog import JobResult, JobRunner, MaterializeConfig, RetryPolicy, Schedule, open_store
from tidelog.effects import Effects
from tidelog.errors import CheckpointFailedError

PATIENCE = RetryPolicy(attempt_timeout=1.0, hedge_after=None, max_backoff=0.1, deadline=2.0)
"""Longer than a busy machine lets an honest server wait for the processor."""

_prefixes = count()


class Bucket:
    """A prefix of its own, reached through an endpoint that a test chooses for each start."""

    def __init__(self, server: S3Server, work_dir: Path) -> None:
        self.server = server
        self.url = server.url(f"faults/{next(_prefixes)}")
        self.sink = Outside()
        self.settings = settings(
            work_dir,
            table="memory",
            checkpoint=Schedule(interval=0.05, tolerable_failures=1),
            materialize=MaterializeConfig(interval=0.2),
        )

    def runner(self, endpoint: str) -> JobRunner:
        options = {**self.server.options, "endpoint_url": endpoint}
        effects = Effects()
        store = open_store(self.url, effects, policy=PATIENCE, options=options)
        words = Portions({"left": [*WORDS, POISON], "right": WORDS}, pause=0.05)
        return JobRunner(counting(self.sink, read=words), store, self.settings, effects)

    async def run(self, runner: JobRunner) -> JobResult:
        try:
            return await runner.run()
        finally:
            await runner.store.close()
            runner.effects.offload.close()

    async def cut_off(
        self, endpoint: str, cut: Callable[[], None]
    ) -> "tuple[JobRunner, asyncio.Task[JobResult]]":
        """A job that loses its store after some checkpoints."""
        runner = self.runner(endpoint)
        running = asyncio.ensure_future(self.run(runner))
        await until(lambda: metrics(runner, "completed") >= 2, running)
        cut()
        return runner, running

    def finish(self) -> JobResult:
        """Start where the server really is."""
        result = asyncio.run(self.run(self.runner(self.server.endpoint)))
        self.check()
        return result

    def check(self) -> None:
        assert Counter(dict(self.sink.records)) == EXPECTED
        assert len(self.sink.records) == len(EXPECTED)

    def objects(self) -> list[str]:
        prefix = self.url.removeprefix(f"s3://{self.server.bucket}/")
        answer = self.server.client().list_objects_v2(Bucket=self.server.bucket, Prefix=prefix)
        return [entry["Key"].removeprefix(f"{prefix}/") for entry in answer.get("Contents", [])]


@pytest.fixture
def bucket(moto: S3Server, tmp_path: Path) -> Bucket:
    return Bucket(moto, tmp_path)


def refuse(behaviour: Behaviour) -> None:
    behaviour.error = lambda exchange: (503, "SlowDown")


def fall_silent(behaviour: Behaviour) -> None:
    """Requests arrive, answers do not: every outcome is unknown."""
    behaviour.lose_answer = lambda exchange: True


def heal(behaviour: Behaviour) -> None:
    behaviour.error = lambda exchange: None
    behaviour.lose_answer = lambda exchange: False


async def until(condition: Callable[[], bool], running: "asyncio.Task[JobResult]") -> None:
    """Until it holds; raises what ends the job before."""
    while not condition():
        if running.done():
            raise AssertionError(f"the job has ended: {running.result()}")
        await asyncio.sleep(0.01)


def metrics(runner: JobRunner, name: str) -> int:
    return getattr(runner.incarnation.driver.metrics, name) if runner.incarnation else 0


@pytest.mark.parametrize("cut", more_in_depth([refuse], [refuse, fall_silent]))
def test_a_store_lost_for_good_stops_the_job_which_resumes_elsewhere(
    cut: Callable[[Behaviour], None], bucket: Bucket
) -> None:
    behaviour = Behaviour()

    async def lose() -> None:
        _, running = await bucket.cut_off(endpoint, lambda: cut(behaviour))
        await running

    with (
        proxy(bucket.server.endpoint, behaviour) as endpoint,
        pytest.raises(CheckpointFailedError, match="2 checkpoints in a row") as stopped,
    ):
        asyncio.run(lose())
    assert "check the endpoint and the network" in str(stopped.value)
    assert bucket.finish().restored_slot is not None


@pytest.mark.parametrize("cut", more_in_depth([fall_silent], [refuse, fall_silent]))
def test_a_store_lost_for_a_while_costs_a_checkpoint_and_no_more(
    cut: Callable[[Behaviour], None], bucket: Bucket
) -> None:
    behaviour = Behaviour()

    async def lose_and_find() -> JobResult:
        runner, running = await bucket.cut_off(endpoint, lambda: cut(behaviour))
        await until(lambda: metrics(runner, "failed") > 0, running)
        heal(behaviour)
        return await running

    with proxy(bucket.server.endpoint, behaviour) as endpoint:
        result = asyncio.run(lose_and_find())
    assert result.restored_slot is None, "the same incarnation went on"
    bucket.check()
