"""How long one piece of work holds the event loop, in virtual time."""

import asyncio
from typing import Any

from tests.support.clock import VirtualClock, in_virtual_time
from tests.support.pipelines import config
from tidelog import Job, JobRunner, JobStatus, status_of
from tidelog.storage.memory import MemoryStore

LIMIT_S = 0.0201


class Stopwatch(VirtualClock):
    """Knows the longest time in which nothing but one stretch of work got the event loop."""

    stretch = longest = 0.0

    def spend(self, seconds: float) -> None:
        super().spend(seconds)
        self.stretch += seconds
        self.longest = max(self.longest, self.stretch)

    async def watch(self) -> None:
        while True:
            await asyncio.sleep(0)
            self.stretch = 0.0


def run_watched(job: Job, clock: Stopwatch, parallelism: int = 1, **settings: Any) -> JobStatus:
    """Run a job and watch how long it holds the loop; its status at the end."""

    async def both() -> JobStatus:
        watching = asyncio.ensure_future(clock.watch())
        effects = in_virtual_time(1, clock)
        configured = config(parallelism=parallelism, **settings)
        runner = JobRunner(job, MemoryStore("memory://long"), configured, effects)
        await runner.run()
        watching.cancel()
        return status_of(runner)

    return asyncio.run(both())
