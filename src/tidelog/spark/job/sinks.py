"""A job's sinks behind `foreachBatch`: the embedded writers, with a batch in place of a checkpoint.

The writers run in the driver. Invariants: a batch is written under one transaction of each sink,
which is stored in the checkpoint before it is committed; a batch whose transactions are stored is
never written again, only committed: so output is exactly once where the embedded sink's is.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tidelog.effects import Effects
from tidelog.errors import ObjectExistsError
from tidelog.ids import CheckpointId, Generation
from tidelog.runtime.node import Node
from tidelog.runtime.sink import SinkContext, SinkWriter
from tidelog.runtime.user_code import user_code
from tidelog.spark.handover.document import Handover, QueryDirectory
from tidelog.spark.operators.records import BRANCH, DATA, decode_records_of
from tidelog.state.objects.classes import RecordTypes
from tidelog.storage.document import FORMAT_VERSION

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_STARTS: Final = "tidelog-starts/"
_BATCHES: Final = "tidelog-transactions/"
_RETAINED: Final = 8
"""Batches whose transactions stay stored."""


class _Start(msgspec.Struct, frozen=True):
    """A start of the query, in the order of their numbers."""

    generation: int
    attempt: str
    format: int = FORMAT_VERSION


class BatchTransactions(msgspec.Struct, frozen=True):
    """The transactions of a batch by the names of their sinks."""

    batch: int
    transactions: dict[str, bytes]
    format: int = FORMAT_VERSION


class Ledger:
    """The starts of a query and the transactions of its batches, in its checkpoint."""

    def __init__(self, directory: QueryDirectory) -> None:
        self._directory = directory

    def start(self, attempt: str, after: int = 0) -> Generation:
        """Begin a start of the query; its number is above that of all before it, and `after`."""
        last = max(after, self.last_start())
        while True:
            last += 1
            try:
                self._directory.put(f"{_STARTS}{last:010d}", _Start(last, attempt), create=True)
            except ObjectExistsError:
                continue  # of another start, at the same time: the greater one goes on
            return Generation(last)

    def last_start(self) -> int:
        """The number of the last start; 0: there was none."""
        names = self._directory.names(_STARTS)
        return max((int(name.removeprefix(_STARTS)) for name in names), default=0)

    def batches(self) -> list[BatchTransactions]:
        """The newest batches of which transactions are stored, in their order."""
        with self._directory.connected():
            names = self._directory.names(_BATCHES)
            documents = [self._directory.read(name, BatchTransactions) for name in names]
        return [document for document in documents if document is not None]

    def keep(self, batch: BatchTransactions) -> None:
        """Store the transactions of a batch, and forget those of old ones."""
        with self._directory.connected():  # once: it is in the way of every batch
            self._directory.put(f"{_BATCHES}{batch.batch:010d}", batch)
            for old in self._directory.names(_BATCHES)[:-_RETAINED]:
                self._directory.delete(old)


class SinkWriters:
    """The writers of a query's sinks, from its start to its end."""

    def __init__(
        self, ledger: Ledger, job: str, branches: Mapping[int, str], types: Sequence[type]
    ) -> None:
        """`branches` are the numbers of what is for the sinks of these names."""
        self._ledger = ledger
        self._job = job
        self._branches = branches
        self._types = RecordTypes(types)
        self._writers: dict[str, SinkWriter] = {}
        self._before = CheckpointId(0)
        """The last checkpoint of the job that the query goes on with."""
        self._last_batch: int | None = None
        """The last batch of which transactions are stored."""
        self._open_writers = ExitStack()

    def open(
        self, sinks: Sequence[Node], effects: Effects, after: Handover | None, *, is_new: bool
    ) -> None:
        """Open a writer for each sink, and commit what the last batch has left to commit.

        `after`: the job that the query goes on with. Raises what sinks raise.
        """
        last_start = 0
        if after is not None:
            self._before, last_start = after.checkpoint_id, after.generation or 0
        generation = self._ledger.start(effects.token(), last_start)
        batches = self._ledger.batches()
        self._last_batch = batches[-1].batch if batches else None
        retained = after.transactions if after is not None else ()
        if retained is not None:
            of_batches = [batch.transactions.values() for batch in batches]
            retained = (*retained, *chain.from_iterable(of_batches))
        for node in sinks:
            assert node.sink is not None
            committed = {
                batch.transactions[node.id]: self._checkpoint(batch.batch)
                for batch in batches[:-1]
                if node.id in batch.transactions
            }
            context = SinkContext(
                self._job,
                node.id,
                0,
                1,
                generation,
                effects.token(),
                retained,
                own_transactions=tuple(
                    batch.transactions[node.id]
                    for batch in batches
                    if node.id in batch.transactions
                ),
                committed_transactions=committed,
                is_new_job=is_new and not batches and not last_start,
                clock=effects.clock,
            )
            with user_code(node.id):
                writer = self._writers[node.id] = node.sink.open(context)
            self._open_writers.callback(partial(_close, node.id, writer))
            last = batches[-1].transactions.get(node.id) if batches else None
            with user_code(node.id):
                writer.recover([] if last is None else [last])

    def write(self, rows: "DataFrame", batch: int) -> None:
        """The function of `foreachBatch`."""
        if self._last_batch is not None and batch <= self._last_batch:
            # Committed when the query started. The batch has to run for its state all the same.
            rows.write.format("noop").mode("overwrite").save()
            return
        for row in rows.where(f"{DATA} is not null").select(BRANCH, DATA).collect():
            name = self._branches[row[BRANCH]]
            self._write(name, decode_records_of(bytes(row[DATA]), self._types))
        transactions: dict[str, bytes] = {}
        for name, writer in self._writers.items():
            with user_code(name):
                token = writer.pre_commit(self._checkpoint(batch))
            if token is not None:
                transactions[name] = bytes(token)
        if transactions:
            self._ledger.keep(BatchTransactions(batch, transactions))
        self._last_batch = batch
        for name, token in transactions.items():
            with user_code(name):
                self._writers[name].commit(token)

    def close(self) -> None:
        """Release all writers."""
        self._open_writers.close()

    def _checkpoint(self, batch: int) -> CheckpointId:
        return CheckpointId(self._before + batch + 1)

    def _write(self, name: str, records: list[Any]) -> None:
        writer = self._writers[name]
        with user_code(name):
            writer.write(records)
            if writer.full():
                writer.make_room()


def _close(name: str, writer: SinkWriter) -> None:
    with user_code(name):
        writer.close()
