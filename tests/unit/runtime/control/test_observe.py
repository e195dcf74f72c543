"""A running job tells all its figures through its control socket."""

import asyncio
import json
from pathlib import Path

import pytest

from tests.unit.runtime.control.test_socket import URL, served
from tests.unit.runtime.test_status import counting_job, runner_of
from tidelog.runtime.control.client import ask
from tidelog.runtime.control.protocol import LIMIT_BYTES, Done, Request
from tidelog.runtime.control.server import serve_control
from tidelog.runtime.runner import JobRunner
from tidelog.storage.memory import MemoryStore


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
    guide = (Path(__file__).parents[4] / "docs" / "guides" / "savepoints.md").read_text()
    first = done.checkpoints[0]
    told = {*first, *first["phases"], "status", "checkpoints"}
    assert {name for name in told if f"`{name}`" not in guide} == set()
    assert json.loads(json.dumps(done.status)) == done.status


async def test_a_job_that_has_not_started_has_a_status_and_no_checkpoints(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with served():
        done = await ask(Request(URL, "observe"))
        assert (done.status["phase"], done.status["generation"]) == ("starting", None)
        assert (done.status["records_read"], done.status["operators"]) == (0, [])
        assert done.checkpoints == []
        # An answer that is longer than any request arrives whole.
        long = {"job": "x" * (LIMIT_BYTES * 3)}
        monkeypatch.setattr("tidelog.runtime.control.server.status_of", lambda runner: long)
        assert (await ask(Request(URL, "observe"))).status == long
