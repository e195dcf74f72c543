"""Records that a client library's thread pushes, of two topics, into a job that is restarted."""

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.first_jobs.programs import run
from tidelog import Emitter, Files, Job, PushSource

LENGTHS = {"orders": 300, "returns": 200}


class Client:
    """Calls a handler from a thread of its own with each message of a topic behind an offset."""

    def __init__(self, topic: str, offset: int, until: int) -> None:
        self.messages = [(n, f"{topic}-{n}") for n in range(offset, until)]

    def start(self, handle: Any, ended: Any) -> None:
        def work() -> None:
            for offset, message in self.messages:
                handle(offset, message)
            ended()

        threading.Thread(target=work, daemon=True).start()


class Topics(PushSource):
    """Reads two topics; `wait` keeps them open when their messages have been read."""

    def __init__(self, share: float, *, wait: bool) -> None:
        self.share = share
        self.wait = wait

    def discover(self) -> Sequence[str]:
        return sorted(LENGTHS)

    async def push(self, split: str, position: Any, emitter: Emitter) -> None:
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()

        def handle(offset: int, message: str) -> None:
            emitted = emitter.emit([message], offset + 1)
            asyncio.run_coroutine_threadsafe(emitted, loop).result()

        client = Client(split, position or 0, int(LENGTHS[split] * self.share))
        client.start(handle, lambda: loop.call_soon_threadsafe(ended.set))
        await ended.wait()
        if self.wait:
            await asyncio.Event().wait()


def test_each_message_is_counted_once_over_a_restart(tmp_path: Path) -> None:
    def job(source: Topics) -> Job:
        job = Job("topics")
        job.source(source).sink(Files(tmp_path / "out", "text"))
        return job

    def texts() -> list[str]:
        parts = (tmp_path / "out").glob("part-*")
        return sorted(line for part in parts for line in part.read_text().splitlines())

    def messages(share: float) -> list[str]:
        return sorted(
            f"{t}-{n}" for t, length in LENGTHS.items() for n in range(int(length * share))
        )

    store = tmp_path / "store"
    run(job(Topics(0.5, wait=True)), store, lambda: texts() == messages(0.5), parallelism=2)
    run(job(Topics(1, wait=False)), store, parallelism=2)
    assert texts() == messages(1)
