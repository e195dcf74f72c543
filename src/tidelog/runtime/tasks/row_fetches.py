"""Rows for buffers that wait, fetched while the table is not whole: in the order of the buffers.

Invariant: a buffer is handled when what it reads is here, as far as that is known before; what of
its rows is not known waits as it is read.
"""

import asyncio
from collections.abc import AsyncIterator
from itertools import filterfalse
from typing import Final, NamedTuple

from tidelog.runtime.channels.gate import Gate
from tidelog.runtime.channels.messages import Batch, KeyedBatch
from tidelog.runtime.tasks.task_checkpoints import TaskParts

_LOOK_S: Final = 0.01
"""So often, at least, a task that waits looks for buffers that have come meanwhile."""

_BUFFERS: Final = 3
"""Buffers that there is room for: the rows of all that wait are fetched side by side."""

_RECORDS: Final = 128
"""Records of a buffer that are handled together: they wait for the rows of so many alone."""


class _Fetched(NamedTuple):
    part: KeyedBatch
    task: "asyncio.Task[None]"


class RowFetches:
    """The fetches for the buffers of one task."""

    def __init__(self, parts: TaskParts, gate: Gate) -> None:
        self._parts, self._gate = parts, gate
        self._most_ahead = max(0, _BUFFERS // len(gate.channels) - 1)
        self._ahead = 0
        self._backend = parts.backend
        assert parts.backend.hydration is not None
        self._hydration = parts.backend.hydration
        self._hydration.notify(gate.wake)  # which delivers nothing while the table is stalled
        self._begun: dict[int, tuple[KeyedBatch, list[_Fetched]]] = {}
        """By the identity of a buffer, which cannot be another's as long as it is here."""

    def are_over(self) -> bool:
        """Whether nothing more is to be fetched; then no more buffers wait than usually."""
        if self._hydration.is_whole:
            self._look_ahead(0)
            self._begun.clear()
        return self._hydration.is_whole

    def _look_ahead(self, buffers: int) -> None:
        """Have room for so many more buffers in each channel than there usually is."""
        if buffers != self._ahead:
            self._gate.widen(buffers - self._ahead)
            self._ahead = buffers

    async def ready(self, batch: Batch) -> AsyncIterator[Batch]:
        """The records of a buffer in parts, each when its rows are here; those of buffers that
        wait are on their way. Raises what reads raise.
        """
        if not isinstance(batch, KeyedBatch):
            yield batch
            return
        # What waits for the link delays barriers, and comes no sooner.
        self._look_ahead(0 if self._hydration.is_short else self._most_ahead)
        for part, task in self._fetched(batch):
            with self._parts.output.work.waiting():
                while not task.done():
                    for upcoming in self._gate.waiting_batches():
                        self._fetched(upcoming)
                    await asyncio.wait([task], timeout=_LOOK_S)
                await asyncio.shield(task)  # others may wait for the same parts
            yield part
        del self._begun[id(batch)]

    def _fetched(self, batch: KeyedBatch) -> "list[_Fetched]":
        """The fetches for a buffer, which begin with the first call."""
        if id(batch) not in self._begun:
            starts = range(0, len(batch), _RECORDS)
            parts = [batch.part(start, min(start + _RECORDS, len(batch))) for start in starts]
            begin, fetch = self._hydration.begin, self._fetch
            self._begun[id(batch)] = batch, [_Fetched(part, begin(fetch(part))) for part in parts]
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
