"""What a directory remembers of the files that were committed to it: hidden marks.

Part files may be moved away, so one that is missing says nothing; a mark says that it was there.
It is an empty file for each start of the job and each subtask, whose name has the newest checkpoint
that was committed. Invariants: a mark is durable when its commit returns; a start makes its mark
before it writes.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tidelog.connectors import transactions
from tidelog.connectors.files.parts import FINAL, PENDING, STAGING, Part, failures
from tidelog.connectors.transactions import TransactionId, Writer, WriterStart, those_of
from tidelog.ids import CheckpointId
from tidelog.runtime.sink import SinkContext
from tidelog.storage.local_files import sync_directory

_MARK: Final = re.compile(
    r"(?P<subtask>\d+)-(?P<generation>\d+)-(?P<attempt>.*)-(?P<checkpoint>\d+)\.committed"
)


class CommitMarks:
    """The marks in a directory, as one subtask of a sink sees them; raises StorageError."""

    def __init__(self, directory: Path, context: SinkContext, before: Writer | None) -> None:
        """`before` is who wrote to the directory until this start, as far as that is known."""
        self._hidden = directory / STAGING
        self._context = context
        self._before = before
        self._newest: dict[WriterStart, int] = {}
        for path in self._hidden.glob("*.committed"):
            if (name := _MARK.fullmatch(path.name)) is not None:
                numbers = int(name["subtask"]), int(name["generation"])
                start = WriterStart(context.name, *numbers, name["attempt"])
                checkpoint = int(name["checkpoint"])
                self._newest[start] = max(checkpoint, self._newest.get(start, 0))
        self._mark(TransactionId.of(context, CheckpointId(0), context.name))

    def record(self, parts: Iterable[Part]) -> None:
        """These parts have their final names, durably."""
        for tx in self._ids(parts):
            self._mark(tx)
        with failures(self._hidden):
            sync_directory(self._hidden)

    def check_complete(self) -> None:
        """Raises ObjectNotFoundError where the directory lacks what was committed, as a copy of an
        earlier day does. What is hidden still belongs to a checkpoint that the job went on without.
        """
        absent: list[TransactionId] = []
        for parts in those_of(list[Part], self._context.committed_transactions):
            ids = (tx for tx in self._ids(parts) if self._context.recovers_for(tx.subtask))
            missing = [*filter(self._lacks, ids)]
            if missing and not any((self._hidden / part.pending).exists() for part in parts):
                absent += missing
        transactions.check_there(absent)

    def forget_all_but(self, parts: Iterable[Part]) -> None:
        """Remove the marks of starts of which none of these is, as far as that is allowed."""
        context, starts = self._context, {tx.start for tx in self._ids(parts)}
        for start, checkpoint in list(self._newest.items()):
            needed = start in starts or start.attempt == context.attempt
            if needed or not context.may_abort(start.generation, start.subtask):
                continue
            del self._newest[start]
            self._remove(start, checkpoint)

    def _ids(self, parts: Iterable[Part]) -> set[TransactionId]:
        """The transactions of these parts, which their names say."""
        ids = set()
        for part in parts:
            owner, name = PENDING.fullmatch(part.pending), FINAL.fullmatch(part.final)
            if owner and name:  # otherwise it is of another kind of sink
                numbers = int(owner["subtask"]), int(owner["generation"])
                checkpoint = CheckpointId(int(name["checkpoint"]))
                ids.add(TransactionId(self._context.name, *numbers, owner["attempt"], checkpoint))
        return ids

    def _lacks(self, tx: TransactionId) -> bool:
        newest = self._newest.get(tx.start)
        if newest is not None:
            return newest < tx.checkpoint
        return self._before is not None and self._before.generation < tx.generation

    def _mark(self, tx: TransactionId) -> None:
        newest = self._newest.get(tx.start)
        if newest is None or newest < tx.checkpoint:
            path = self._path(tx.start, tx.checkpoint)
            with failures(path):
                path.touch()
            self._newest[tx.start] = tx.checkpoint
            if newest is not None:
                self._remove(tx.start, newest)

    def _remove(self, start: WriterStart, checkpoint: int) -> None:
        path = self._path(start, checkpoint)
        with failures(path):
            path.unlink(missing_ok=True)

    def _path(self, start: WriterStart, checkpoint: int) -> Path:
        name = f"{start.subtask}-{start.generation}-{start.attempt}-{checkpoint}.committed"
        return self._hidden / name
