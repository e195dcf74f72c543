"""A job that runs beside a test, with a control socket, as `tidelog run` has one."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

from tidelog import (
    CheckpointConfig,
    ForeachSink,
    Job,
    JobConfig,
    JobRunner,
    RateSource,
    serve_control,
)
from tidelog.effects import Effects, loop_thread
from tidelog.storage.port import ObjectStore


@contextmanager
def running_job(store: ObjectStore, work_dir: Path) -> Iterator[None]:
    """A job with a checkpoint every moment and a control socket, on a loop of its own."""
    job = Job("counting")
    numbers = job.source(RateSource(2000)).key_by(lambda n: n % 100)
    numbers.count().sink(ForeachSink(lambda _: None))
    config = JobConfig(work_dir=work_dir, checkpoint=CheckpointConfig(interval=0.05))
    loop, _ = loop_thread()
    runner = JobRunner(job, store, config, Effects())

    async def run() -> None:
        up = asyncio.Event()
        running = asyncio.ensure_future(runner.run(up.set))
        try:
            await asyncio.wait(
                [running, asyncio.ensure_future(up.wait())], return_when="FIRST_COMPLETED"
            )
            async with serve_control(runner):
                started.set_result(None)
                await running
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            ended.set_result(None)

    started: Future[None] = Future()
    ended: Future[None] = Future()
    working = asyncio.run_coroutine_threadsafe(run(), loop)
    try:
        started.result(60)
        yield
    finally:
        working.cancel()
        ended.result(60)
        loop.call_soon_threadsafe(loop.stop)
