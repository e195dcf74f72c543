"""A running job tells all its figures through its control socket."""

import asyncio
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.pipelines import Outside, config, word_count, words
from tests.unit.runtime.test_status import counting_job, runner_of
from tidelog.effects import Effects
from tidelog.runtime.control.address import DIRECTORY_VARIABLE
from tidelog.runtime.control.client import ask
from tidelog.runtime.control.protocol import LIMIT_BYTES, Done, Request
from tidelog.runtime.control.server import serve_control
from tidelog.runtime.runner import JobRunner
from tidelog.storage.memory import MemoryStore

URL = "memory://observed"


@pytest.fixture(autouse=True)
def directory(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A short path: those of sockets are limited to about a hundred bytes."""
    with tempfile.TemporaryDirectory(prefix="tlc") as made:
        monkeypatch.setenv(DIRECTORY_VARIABLE, str(Path(made) / "sockets"))
        yield


async def observed(runner: JobRunner, checkpoints: int) -> Done:
    """The answer of a job that has completed so many checkpoints."""
    running = asyncio.ensure_future(runner.run())
    try:
        async with serve_control(runner):
            while True:
                done = await ask(Request(URL, "observe"))
                if len(done.checkpoints) >= checkpoints:
                    return done
                assert not running.done(), running
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def test_a_running_job_tells_its_status_and_its_checkpoints(tmp_path: Path) -> None:
    job, _ = counting_job(limit=None)
    store = MemoryStore(URL)
    done = asyncio.run(observed(runner_of(job, store, tmp_path), checkpoints=3))
    assert (done.job, done.status["job"], done.status["phase"]) == (
        "counting",
        "counting",
        "running",
    )
    assert done.status["checkpoints"]["completed"] >= 3
    assert [each["id"] for each in done.status["operators"]]
    slots = [each["slot"] for each in done.checkpoints]
    assert slots == list(range(slots[0], slots[0] + len(slots)))
    for each in done.checkpoints:
        assert sum(each["phases"].values()) == pytest.approx(each["seconds"])
        assert min(each["phases"].values()) >= 0
        assert each["manifest_bytes"] > 0 and each["savepoint"] is None


def test_a_job_that_has_not_started_has_a_status_and_no_checkpoints() -> None:
    async def main() -> None:
        effects = Effects()
        runner = JobRunner(word_count(words(), Outside()), MemoryStore(URL), config(), effects)
        async with serve_control(runner):
            done = await ask(Request(URL, "observe"))
        assert (done.status["phase"], done.checkpoints) == ("starting", [])
        effects.offload.close()

    asyncio.run(main())


def test_an_answer_longer_than_any_request_arrives_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    long = {"job": "x" * (LIMIT_BYTES * 3)}
    monkeypatch.setattr("tidelog.runtime.control.server.status_of", lambda runner: long)

    async def main() -> Done:
        effects = Effects()
        runner = JobRunner(word_count(words(), Outside()), MemoryStore(URL), config(), effects)
        async with serve_control(runner):
            done = await ask(Request(URL, "observe"))
        effects.offload.close()
        return done

    assert asyncio.run(main()).status == long


def test_every_field_that_is_sent_is_documented(tmp_path: Path) -> None:
    job, _ = counting_job(limit=None)
    done = asyncio.run(observed(runner_of(job, MemoryStore(URL), tmp_path), checkpoints=1))
    guide = (Path(__file__).parents[4] / "docs" / "guides" / "savepoints.md").read_text()
    [checkpoint] = done.checkpoints[:1]
    told: dict[str, Any] = {**checkpoint, **checkpoint["phases"], "status": 0, "checkpoints": 0}
    assert {name for name in told if f"`{name}`" not in guide} == set()
    assert json.loads(json.dumps(done.status)) == done.status
