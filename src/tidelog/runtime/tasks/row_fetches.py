"""Rows for buffers that wait, fetched while the table is not whole: in the order of the buffers.

Invariant: a buffer is handled when what it reads is here, as far as that is known before; what of
its rows is not known waits as it is read.
"""

import asyncio
from itertools import filterfalse

from tidelog.runtime.channels.gate import Gate
from tidelog.runtime.channels.messages import Batch, KeyedBatch
from tidelog.runtime.tasks.task_checkpoints import TaskParts


class RowFetches:
    """The fetches for the buffers of one task."""

    def __init__(self, parts: TaskParts, gate: Gate) -> None:
        self._parts, self._gate = parts, gate
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
            return None
        if isinstance(batch, KeyedBatch):
            for upcoming in (batch, *self._gate.waiting_batches()):
                if id(upcoming) not in self._begun:
                    task = self._hydration.begin(self._fetch(upcoming))
                    self._begun[id(upcoming)] = upcoming, task
            _, task = self._begun.pop(id(batch))
            with self._parts.output.work.waiting():
                await asyncio.shield(task)  # others may wait for the same parts
        return self

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
