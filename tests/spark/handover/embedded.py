"""Jobs that are stopped by a savepoint once they have handled their input."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tidelog import Job, JobConfig, JobRunner, open_store
from tidelog.runtime.status.observe import status_of

PATIENCE_S = 120
CONFIG = JobConfig(parallelism=2, buffer_records=20)
"""Event time moves after each buffer. Without a limit a short file would be one buffer, however
its reads fall, and none of its records late."""


def stopped(
    job: Job,
    store: Path,
    handled: Callable[[], bool] | int,
    name: str = "halt",
    key: str | None = None,
) -> None:
    """Run a job that follows its input until it has `handled` all, or so many records, and stop it
    by a savepoint.
    """

    def is_over(runner: JobRunner) -> bool:
        return handled <= status_of(runner).records_read if isinstance(handled, int) else handled()

    async def run() -> None:
        opened = open_store(str(store), encryption_key=key)
        runner = JobRunner(job, opened, CONFIG)
        started = asyncio.Event()
        running = asyncio.ensure_future(runner.run(started.set))
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.wait(
                [running, asyncio.ensure_future(started.wait())], return_when="FIRST_COMPLETED"
            )
            while not is_over(runner) and not running.done():
                await asyncio.sleep(0.01)
            if not running.done():
                await runner.stop(name)
            await running

    asyncio.run(run())


def finished(job: Job, store: Path, key: str | None = None) -> None:
    """Run a job to the end of its input."""
    opened = open_store(str(store), encryption_key=key)
    asyncio.run(JobRunner(job, opened, CONFIG).run())


def lines(directory: Path) -> list[dict[str, Any]]:
    """The records of the files that a sink has committed."""
    files = sorted(directory.glob("part-*"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]
