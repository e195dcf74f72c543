"""A store and an event loop for code that Spark calls without one.

Invariants: everything that is opened is closed again, also when the reading of a partition is
given up half-way; nothing here is kept between two calls of Spark's.
"""

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from tidelog.effects import Effects
from tidelog.storage.open import open_store
from tidelog.storage.port import ObjectStore

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Session:
    """An open store."""

    store: ObjectStore
    effects: Effects
    runner: asyncio.Runner

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of asynchronous work; raises what it raises."""
        return self.runner.run(work)


@contextmanager
def connected(url: str, endpoint: str | None = None) -> Iterator[Session]:
    """The store at a URL; raises ConfigError for one that cannot be opened."""
    effects = Effects()
    options = {} if endpoint is None else {"endpoint_url": endpoint}
    with closing(effects.offload), asyncio.Runner() as runner:
        store = open_store(url, effects, options=options)
        try:
            yield Session(store, effects, runner)
        finally:
            runner.run(store.close())
