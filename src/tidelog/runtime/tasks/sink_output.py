"""The sink end of a task: writes records, keeps and commits transactions.

Invariants: calls into the writer never overlap; a transaction stays in every checkpoint until
its commit returned; nothing is committed before its checkpoint is durable.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from tidelog.checkpoint.manifest import Checkpoint
from tidelog.effects import Offload
from tidelog.errors import OLDER_CHECKPOINT, CorruptObjectError, UserFunctionError
from tidelog.ids import CheckpointId
from tidelog.runtime.channels.buffers import BufferLimit
from tidelog.runtime.channels.messages import Batch, SideBatch
from tidelog.runtime.channels.output import ChannelOutput
from tidelog.runtime.operators.portion import Portion
from tidelog.runtime.operators.turn import WorkTime
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
            action=OLDER_CHECKPOINT,
        ) from cause


def token_of(transaction: bytes) -> bytes:
    """The sink's own token of a transaction in a manifest; raises CorruptObjectError."""
    return _decoded(transaction).token


def transactions_of(checkpoints: Iterable[Checkpoint]) -> tuple[bytes, ...]:
    """The sinks' tokens of all transactions that these checkpoints name, each once."""
    tokens: dict[bytes, None] = {}
    for checkpoint in checkpoints:
        for _, state in checkpoint.subtasks():
            tokens |= dict.fromkeys(map(token_of, state.transactions))
    return tuple(tokens)


def transactions_by_sink(checkpoints: Iterable[Checkpoint]) -> dict[str, dict[bytes, CheckpointId]]:
    """As `transactions_of`, by the sink that wrote them, each with the checkpoint it belongs to."""
    by_sink: dict[str, dict[bytes, CheckpointId]] = {}
    for checkpoint in checkpoints:
        for operator, state in checkpoint.subtasks():
            transactions = map(_decoded, state.transactions)
            by_sink.setdefault(operator.sink, {}).update(
                (transaction.token, transaction.checkpoint) for transaction in transactions
            )
    return by_sink


class SinkOutput(ChannelOutput):
    """The output of a task that ends in a sink: a writer, and no channels."""

    available = True
    """A sink always has room."""

    def __init__(
        self, name: str, writer: SinkWriter, offload: Offload, work: WorkTime, limit: BufferLimit
    ) -> None:
        super().__init__([], work, limit)
        self._name = name
        self._writer = writer
        self._offload = offload
        self._open: list[_Transaction] = []
        self._portion = Portion()
        self._lock = asyncio.Lock()

    async def recover(self, transactions: tuple[bytes, ...]) -> None:
        """Commit what the restored checkpoint holds, before any new data."""
        tokens = list(map(token_of, transactions))
        async with self._lock:
            await self._offload.run_to_end(in_user_code(self._name, self._writer.recover), tokens)

    async def emit(self, batch: Batch) -> None:
        """Write a buffer; one of a side output is dropped, as nothing consumes it here."""
        if batch.records and not isinstance(batch, SideBatch):
            self.records += len(batch.records)
            for piece in self._portion.pieces(batch, self.work.turn):
                await self._write(piece.records)

    async def _write(self, records: list[Any]) -> None:
        async with self._turn():
            started = self.work.clock.monotonic()
            with user_code(self._name):
                self._writer.write(records)
            seconds = self.work.called(self._name, started)
            if self._writer.full():
                with self.work.waiting():
                    await self._offload.run_to_end(in_user_code(self._name, self._writer.make_room))
        self._portion.took(len(records), seconds)
        if self.work.turn.ended():
            await self.work.rest()

    def due(self) -> bool:
        with user_code(self._name):
            return self._writer.due()

    async def pre_commit(self, checkpoint: CheckpointId) -> tuple[bytes, ...]:
        """Close the open transaction; returns all that a completed checkpoint would commit."""
        with self.work.waiting():
            async with self._lock:
                token = await self._offload.run_to_end(
                    in_user_code(self._name, self._writer.pre_commit), checkpoint
                )
        if not isinstance(token, bytes | bytearray | None):
            # A restore could not read another type from the checkpoint.
            raise UserFunctionError(
                self._name,
                expected="bytes or None from pre_commit()",
                found=f"a {type(token).__name__}",
                action="encode what names the transaction, and start the job again",
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
