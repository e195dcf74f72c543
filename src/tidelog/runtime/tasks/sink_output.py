"""The sink end of a task: writes records, keeps and commits transactions.

Invariants: calls into the writer never overlap; a transaction stays in every checkpoint until
its commit returned; nothing is committed before its checkpoint is durable.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from tidelog.checkpoint.manifest import Checkpoint
from tidelog.effects import Offload
from tidelog.errors import CorruptObjectError
from tidelog.ids import CheckpointId
from tidelog.runtime.channels.buffers import ONE_LIMIT, BufferLimit
from tidelog.runtime.channels.messages import Barrier, Batch, SideBatch, Splits, TaskEvent
from tidelog.runtime.in_flight.capture import InFlight
from tidelog.runtime.operators.turn import TURN_S, Portion, WorkTime
from tidelog.runtime.sink import SinkWriter
from tidelog.runtime.user_code import in_user_code, user_code


class _Transaction(msgspec.Struct, frozen=True, array_like=True):
    checkpoint: CheckpointId
    token: bytes


def _decoded(transaction: bytes) -> _Transaction:
    try:
        return msgspec.msgpack.decode(transaction, type=_Transaction)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as cause:
        raise CorruptObjectError(
            "a sink's transaction in a manifest",
            expected="the number of its checkpoint and the sink's own bytes",
            found=str(cause),
            action="restore an older slot (`tidelog checkpoints list URL` shows them)",
        ) from cause


def token_of(transaction: bytes) -> bytes:
    """The sink's own token of a transaction in a manifest; raises CorruptObjectError."""
    return _decoded(transaction).token


def transactions_of(checkpoints: Iterable[Checkpoint]) -> tuple[bytes, ...]:
    """The sinks' tokens of all transactions that these checkpoints name, each once."""
    subtasks = (state for checkpoint in checkpoints for _, state in checkpoint.subtasks())
    return tuple({token_of(found): None for state in subtasks for found in state.transactions})


class SinkOutput:
    """Takes the place of `Output` in a task that ends in a sink."""

    def __init__(
        self,
        name: str,
        writer: SinkWriter,
        offload: Offload,
        work: WorkTime,
        limit: BufferLimit = ONE_LIMIT,
    ) -> None:
        self._name = name
        self._writer = writer
        self._offload = offload
        self.work = work
        self.limit = limit
        self._open: list[_Transaction] = []
        self._portion = Portion()
        self._lock = asyncio.Lock()
        self.records = 0

    async def recover(self, transactions: tuple[bytes, ...]) -> None:
        """Commit what the restored checkpoint holds, before any new data."""
        restored = list(map(_decoded, transactions))
        async with self._lock:
            tokens = [transaction.token for transaction in restored]
            await self._offload.run_to_end(in_user_code(self._name, self._writer.recover), tokens)

    def joined(self, batches: Iterable[Batch]) -> Iterable[Batch]:
        """What a buffer of input has become, in few buffers: each is a call of the writer."""
        return self.limit.joined(batches, self.work.turn.now, TURN_S)

    async def emit(self, batch: Batch) -> None:
        """Write a buffer; one of a side output is dropped, as nothing consumes it here."""
        if batch.records and not isinstance(batch, SideBatch):
            self.records += len(batch.records)
            for piece in self._portion.pieces(batch, self.work.turn):
                await self._write(piece.records)

    async def _write(self, records: list[Any]) -> None:
        now = self.work.clock.monotonic
        async with self._turn():
            started = now()
            with user_code(self._name):
                self._writer.write(records)
            took = now() - started
            if self._writer.full():
                with self.work.waiting():
                    await self._offload.run_to_end(in_user_code(self._name, self._writer.make_room))
        self.work.called(self._name, took)
        self._portion.took(len(records), took)
        if self.work.turn.ended():
            await self.work.rest()

    available = True
    """As of `Output`: a sink always has room."""

    def notify(self, listener: Callable[[], None]) -> None:
        """Nothing: a sink is always available."""

    announces_splits = False
    """Nothing follows a sink."""

    def announce_splits(self, splits: Splits) -> None:
        """Nothing follows a sink."""

    async def announce(self, event: TaskEvent) -> None:
        """Nothing follows a sink."""

    def forward(self, barrier: Barrier, in_flight: InFlight | None) -> None:
        """Nothing follows a sink."""

    def switch(self, barrier: Barrier, in_flight: InFlight) -> None:
        """Nothing follows a sink, so no barrier waits."""

    def forget(self, checkpoint: CheckpointId) -> None:
        """Nothing follows a sink, so no barrier is tracked."""

    async def pre_commit(self, checkpoint: CheckpointId) -> tuple[bytes, ...]:
        """Close the open transaction; returns all that a completed checkpoint would commit."""
        with self.work.waiting():
            async with self._lock:
                token = await self._offload.run_to_end(
                    in_user_code(self._name, self._writer.pre_commit), checkpoint
                )
        if token is not None:
            self._open.append(_Transaction(checkpoint, token))
        return tuple(msgspec.msgpack.encode(transaction) for transaction in self._open)

    async def commit(self, checkpoint: CheckpointId) -> None:
        """The checkpoint is durable: commit its transactions and those before it."""
        async with self._lock:
            for transaction in [t for t in self._open if t.checkpoint <= checkpoint]:
                await self._offload.run_to_end(
                    in_user_code(self._name, self._writer.commit), transaction.token
                )
                self._open.remove(transaction)

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """Keeps the writer for the task; waiting for a commit under way counts as back-pressure."""
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
        with user_code(self._name):
            self._writer.close()
