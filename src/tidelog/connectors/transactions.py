"""Transactions: their names, and the bytes that a checkpoint keeps of them.

Invariant: a transaction is decoded by the kind of sink that made it, or the restore fails.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final, NamedTuple, TypeVar

import msgspec

from tidelog.errors import FencedError, ObjectNotFoundError, RestoreError, UnavailableError
from tidelog.runtime.sink import SinkContext

T = TypeVar("T")

_DAMAGE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

CLONE: Final = "stop the job with a savepoint, `tidelog clone` its store, and start it on the clone"
"""How a job goes on with a sink that writes to another place: a clone leaves transactions out."""

encode = msgspec.msgpack.encode


class WriterStart(NamedTuple):
    """One start of a job, as one subtask of a sink knows it."""

    sink: str
    subtask: int
    generation: int
    attempt: str


class Writer(NamedTuple):
    """Who writes to an output: one start of a job in one store, where a generation has one attempt;
    in another store a start of the same number has another one.
    """

    generation: int
    attempt: str

    @classmethod
    def of(cls, context: SinkContext) -> "Writer":
        return cls(context.generation, context.attempt)

    def gives_way(self, other: "Writer") -> bool:
        """Whether another one may write from now on, or is the same."""
        return other == self or other.generation > self.generation

    def __str__(self) -> str:
        return f"{self.generation}-{self.attempt}"


class TransactionId(NamedTuple):
    """The name of a sink's transaction, in the order of the columns of a database's tables."""

    sink: str
    subtask: int
    generation: int
    attempt: str
    checkpoint: int

    @classmethod
    def of(cls, context: SinkContext, checkpoint: int, sink: str) -> "TransactionId":
        """The name of the transaction that a writer pre-commits for a checkpoint."""
        return cls(sink, context.subtask, context.generation, context.attempt, checkpoint)

    @property
    def start(self) -> WriterStart:
        """The start of the job that wrote the transaction."""
        return WriterStart(*self[:-1])

    def __str__(self) -> str:
        name = f"{self.generation}-{self.attempt}-{self.checkpoint}"
        return f"transaction {name} of sink {self.sink!r}, subtask {self.subtask}"


def decode(sink: str, kind: type[T], transaction: bytes) -> T:
    """Raises RestoreError for a transaction of another kind of sink."""
    try:
        return msgspec.msgpack.decode(transaction, type=kind)
    except _DAMAGE as error:
        raise RestoreError(
            f"a transaction of sink {sink!r}",
            expected="one that this kind of sink wrote",
            found=str(error),
            action="start the job with the sink that wrote it and stop it with a savepoint, then "
            "change sinks",
        ) from error


def those_of(kind: type[T], transactions: Iterable[bytes]) -> Iterator[T]:
    """The transactions among these that this kind of sink wrote."""
    decode = msgspec.msgpack.Decoder(kind).decode
    for transaction in transactions:
        with suppress(*_DAMAGE):
            yield decode(transaction)


def moved(transaction: str, expected: str, found: str) -> RestoreError:
    """The error of a transaction that the sink wrote when it still was another one."""
    return RestoreError(
        transaction,
        expected=expected,
        found=found,
        action="start the job with the sink as before (its name, table, columns, prefix) and stop "
        "it with a savepoint, which commits this; then change it",
    )


def fenced(sink: str, me: Writer, newest: object, where: str, forget: str) -> FencedError:
    """The error of a start in whose place another one writes; `forget` says how that is undone."""
    return FencedError(
        f"start {me} of sink {sink!r}",
        expected=f"to be the newest one that writes to its output, as {where} says",
        found=f"start {newest}" if newest else "none",
        action="let the newer start of the job go on: one in this store, or in the one to which "
        "the job was moved; if there is none because the job began again in a new store, "
        f"{forget} and start it again",
        retry_safe=False,
    )


def check_there(absent: Iterable[TransactionId]) -> None:
    """Raises ObjectNotFoundError when there are transactions that an output lacks."""
    if lost := sorted(absent, key=lambda tx: (tx.generation, tx.checkpoint)):
        first, last = lost[0].checkpoint, lost[-1].checkpoint
        raise ObjectNotFoundError(
            f"output of sink {lost[0].sink!r}",
            expected="all that the job has committed, as far as retained checkpoints name it",
            found=f"nothing of {len(lost)} transactions, of the checkpoints {first} to {last}: an "
            "older copy of it",
            action="bring back the newest one; or write their records again, from a savepoint or "
            f"checkpoint before {first}: `tidelog clone URL@N NEWURL`, and start the job there; to "
            f"write to another output from now on, {CLONE}",
            retry_safe=False,
        )


def check_begins(context: SinkContext, sink: str, committed: Iterable[object], forget: str) -> None:
    """Raises ConfigError where a job begins and its output has what a job of the same name has
    committed, whose state is not in the store; `forget` says how that is forgotten.
    """
    if context.is_new_job and (commit := next(iter(committed), None)) is not None:
        raise UnavailableError(
            f"output of sink {sink!r}",
            expected="nothing that a job of this name has committed, where a job begins: its "
            "output would be added to that",
            found=f"{commit}",
            action="give the job the store that it had, or another output; where it is to add to "
            f"this one, {forget} and start it again",
            retry_safe=False,
        )
