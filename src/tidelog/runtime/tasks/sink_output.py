"""The sink end of a task: writes records, keeps and commits transactions.

Invariants: calls into the writer never overlap; a transaction stays in every checkpoint until
its commit returned; nothing is committed before its checkpoint is durable.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec

from tidelog.effects import Offload
from tidelog.ids import CheckpointId
from tidelog.runtime.blame import blame
from tidelog.runtime.channels.messages import Barrier, Batch, EndOfChannel, EndOfData, Watermark
from tidelog.runtime.in_flight.capture import InFlight
from tidelog.runtime.sink import SinkWriter
from tidelog.runtime.tasks.worktime import WorkTime


class _Transaction(msgspec.Struct, frozen=True, array_like=True):
    checkpoint: CheckpointId
    token: bytes


def token_of(transaction: bytes) -> bytes:
    """What the sink calls a transaction that a manifest holds."""
    return msgspec.msgpack.decode(transaction, type=_Transaction).token


class SinkOutput:
    """Takes the place of `Output` in a task that ends in a sink."""

    def __init__(self, name: str, writer: SinkWriter, offload: Offload, work: WorkTime) -> None:
        self._name = name
        self._writer = writer
        self._offload = offload
        self.work = work
        self._open: list[_Transaction] = []
        self._lock = asyncio.Lock()
        self.records = 0

    async def recover(self, transactions: tuple[bytes, ...]) -> None:
        """Commit what the restored checkpoint holds, before any new data."""
        restored = [msgspec.msgpack.decode(data, type=_Transaction) for data in transactions]
        async with self._lock:
            tokens = [transaction.token for transaction in restored]
            with blame(self._name):
                await self._offload.run(self._writer.recover, tokens)

    async def emit(self, batch: Batch) -> None:
        """Write a buffer."""
        if batch.records:
            self.records += len(batch.records)
            async with self._turn():
                with blame(self._name):
                    self._writer.write(batch.records)

    available = True
    """A sink takes what it is given."""

    def notify(self, listener: Callable[[], None]) -> None:
        """It is always available."""

    async def announce(self, event: Watermark | EndOfData | EndOfChannel) -> None:
        """Nothing follows a sink."""

    def forward(self, barrier: Barrier, in_flight: InFlight | None) -> None:
        """Nothing follows a sink."""

    async def pre_commit(self, checkpoint: CheckpointId) -> tuple[bytes, ...]:
        """Close the open transaction; returns all that a completed checkpoint would commit."""
        with self.work.waiting():
            async with self._lock:
                with blame(self._name):
                    token = await self._offload.run(self._writer.pre_commit, checkpoint)
        if token is not None:
            self._open.append(_Transaction(checkpoint, token))
        return tuple(msgspec.msgpack.encode(transaction) for transaction in self._open)

    async def commit(self, checkpoint: CheckpointId) -> None:
        """The checkpoint is durable: commit its transactions and those before it."""
        async with self._lock:
            for transaction in [t for t in self._open if t.checkpoint <= checkpoint]:
                with blame(self._name):
                    await self._offload.run(self._writer.commit, transaction.token)
                self._open.remove(transaction)

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """The writer for the task; the wait for a commit under way is no work."""
        if self._lock.locked():
            with self.work.waiting():
                await self._lock.acquire()
        else:
            await self._lock.acquire()
        try:
            yield
        finally:
            self._lock.release()

    def close(self) -> None:
        """Release the writer; open transactions are recovered by the next start."""
        with blame(self._name):
            self._writer.close()
