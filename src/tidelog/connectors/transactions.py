"""Transactions as the bytes a checkpoint keeps.

Invariant: a transaction is decoded by the kind of sink that made it, or the restore fails.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final, TypeVar

import msgspec

from tidelog.errors import RestoreError

T = TypeVar("T")

_DAMAGE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

encode = msgspec.msgpack.encode


def decode(sink: str, kind: type[T], transaction: bytes) -> T:
    """Raises RestoreError for a transaction of another kind of sink."""
    try:
        return msgspec.msgpack.decode(transaction, type=kind)
    except _DAMAGE as error:
        raise RestoreError(
            f"a transaction of sink {sink!r}",
            expected="one that this kind of sink wrote",
            found=str(error),
            action="restore with the sink that wrote it and drain the job, then change sinks",
        ) from error


def those_of(kind: type[T], transactions: Iterable[bytes]) -> Iterator[T]:
    """The transactions among these that this kind of sink wrote."""
    decode = msgspec.msgpack.Decoder(kind).decode
    for transaction in transactions:
        with suppress(*_DAMAGE):
            yield decode(transaction)


def moved(transaction: str, expected: str, found: str) -> RestoreError:
    """The error of a transaction that was written for another table or other columns."""
    return RestoreError(
        transaction,
        expected=expected,
        found=found,
        action="restore with the table and columns as before and drain the job, then change them",
    )
