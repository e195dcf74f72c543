"""Documents of the operators' page, made from stores in memory and from jobs that are made up."""

import asyncio
from collections.abc import Mapping
from typing import Any

from tests.support.clock import VirtualClock
from tests.support.jobs import store_of
from tidelog.errors import ControlError
from tidelog.runtime.control.protocol import Done, Request
from tidelog.ui.document import Document
from tidelog.ui.following import Follower
from tidelog.ui.stored import StoreReader
from tidelog.ui.watch import Watcher


class MadeUpJob:
    """Answers for a job; None: no job runs."""

    def __init__(self, answer: Done | Exception | None = None) -> None:
        self.answer = answer

    async def __call__(self, request: Request) -> Done:
        assert request.operation == "observe"
        if isinstance(self.answer, Done):
            return self.answer
        raise self.answer or ControlError(
            "the job", expected="one", found="none", action="start it"
        )


def watcher(
    store: Any, job: MadeUpJob | None = None, clock: VirtualClock | None = None
) -> Follower:
    """What follows a store, and a job that is made up."""
    clock = clock or VirtualClock(auto=False)
    reader = StoreReader(store, clock)
    return Follower(store, clock, Watcher(reader, clock, ask=job or MadeUpJob()))


def document_of(objects: Mapping[str, bytes], job: MadeUpJob | None = None) -> Document:
    store = store_of(objects)

    async def read() -> Document:
        watching = watcher(store, job)
        await watching.look_at_job()
        return await watching.document()

    return asyncio.run(read())


def done(status: Mapping[str, Any], checkpoints: tuple[Any, ...] = ()) -> Done:
    return Done("word-count", 7, 4, status=dict(status), checkpoints=list(checkpoints))
