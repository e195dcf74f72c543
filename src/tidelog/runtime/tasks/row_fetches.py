"""Rows for buffers that wait, fetched while the table is not whole: in the order of the buffers.

Invariant: a buffer is handled when what it reads is here, as far as that is known before; what of
its rows is not known waits as it is read.
"""

import asyncio
from itertools import filterfalse
from typing import Final

from tidelog.runtime.channels.gate import Gate
from tidelog.runtime.channels.messages import Batch, KeyedBatch
from tidelog.runtime.tasks.task_checkpoints import TaskParts

_LOOK_S: Final = 0.01
"""So often, at least, a task that waits looks for buffers that have come meanwhile."""

_BUFFERS: Final = 3
"""Buffers that there is room for: the rows of all that wait are fetched side by side."""


class RowFetches:
    """The fetches for the buffers of one task."""

    def __init__(self, parts: TaskParts, gate: Gate) -> None:
        self._parts, self._gate = parts, gate
        self._ahead = max(0, _BUFFERS // len(gate.channels) - 1)
        gate.widen(self._ahead)
        self._backend = parts.backend
        assert parts.backend.hydration is not None
        self._hydration = parts.backend.hydration
        self._hydration.notify(gate.wake)  # which delivers nothing while the table is stalled
        self._begun: dict[int, tuple[KeyedBatch, asyncio.Task[None]]] = {}
        """By the identity of a buffer, which cannot be another's as long as it is here."""

    async def for_batch(self, batch: Batch) -> "RowFetches | None":
        """Return when the rows of a buffer are here; those of buffers that wait are on their way.

        None: the table is whole, and nothing more is to be fetched. Raises what reads raise.
        """
        if self._hydration.is_whole:
            self._gate.widen(-self._ahead)
            return None
        if isinstance(batch, KeyedBatch):
            task = self._fetched(batch)
            with self._parts.output.work.waiting():
                while not task.done():
                    for upcoming in self._gate.waiting_batches():
                        self._fetched(upcoming)
                    await asyncio.wait([task], timeout=_LOOK_S)
                await asyncio.shield(task)  # others may wait for the same parts
            del self._begun[id(batch)]
        return self

    def _fetched(self, batch: KeyedBatch) -> "asyncio.Task[None]":
        """The fetch for a buffer, which begins with the first call."""
        if id(batch) not in self._begun:
            self._begun[id(batch)] = batch, self._hydration.begin(self._fetch(batch))
        return self._begun[id(batch)][1]

    async def _fetch(self, batch: KeyedBatch) -> None:
        """Fetch the rows that the operator names, or those that its states tell."""
        from tidelog.state.recovery.reads import FIRST_ROWS, KeyReads  # noqa: PLC0415  # few starts

        in_memory, rows = self._backend.buffer.has, self._parts.chain.rows_read(batch)
        if rows is None:
            states = KeyReads(self._backend.registry.infos())
            keys, ranges = states.of(batch.group_keys, in_memory)
        else:
            keys, ranges = list(filterfalse(in_memory, rows)), []
        await self._hydration.ensure(keys, ranges, FIRST_ROWS)
