"""What records take in memory, and how large a buffer may be.

Invariants: every record of a buffer is measured, with all that it refers to, so one that is large
and rare is never hidden: how long they are as msgpack, which takes no loop in Python, and how many
bytes of memory that stands for, by a sample. No buffer holds more than its limit of bytes or
records, but for a record that is larger alone.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from math import inf
from sys import getsizeof
from typing import Any, Final

import msgspec

from tidelog.runtime.channels.messages import Batch, SideBatch

_CONTAINERS: Final = (list, tuple, set, frozenset, deque)
_DEPTH: Final = 8
_SAMPLE: Final = 32
_MOST: Final = 1 << 18
"""Values on one level of nesting that are measured each; of more some stand for all."""
_FIRST: Final = 8
"""Values that are taken before they are measured; twice as many next time."""


@dataclass(frozen=True, slots=True)
class BufferLimit:
    """The most that one buffer holds."""

    bytes: int = 1 << 20
    records: int = 8192

    def parts(self, batch: Batch) -> Iterable[Batch]:
        """The records in their order, at most `records` of them at a time."""
        count = len(batch.records)
        if count <= self.records:
            return (batch,)
        starts = range(0, count, self.records)
        return (batch.part(start, start + self.records) for start in starts)

    def cut(self, batch: Batch) -> Iterator[Batch]:
        """The buffers that the records have to be cut into, measured."""
        count = len(batch.records)
        if count <= self.records:
            batch.size_bytes = batch.size_bytes or bytes_of(batch.records)
            if count == 1 or batch.size_bytes <= self.bytes:
                yield batch
                return
        pieces = max(2, -(-count // self.records))
        for piece in range(pieces):
            part = batch.part(piece * count // pieces, (piece + 1) * count // pieces)
            part.size_bytes = 0  # a share of the whole says nothing of a large record
            yield from self.cut(part)

    def joined(
        self, pieces: Iterable[Batch], now: Callable[[], float], hold_s: float = inf
    ) -> Iterator[Batch]:
        """What one buffer has become, in as few buffers as fit.

        Records are held for `hold_s` of the time that making the others takes, at most. Buffers
        without records, which are signs to the task, overtake what is pending.
        """
        pending: list[Batch] = []
        made_s, started = 0.0, now()
        for piece in pieces:
            made_s += now() - started
            if not piece.records or isinstance(piece, SideBatch):
                yield piece
            else:
                if pending and not self._fits_too(pending, piece):
                    yield _one(pending)
                    pending, made_s = [], 0.0
                pending.append(piece)
                if made_s >= hold_s:
                    yield _one(pending)
                    pending, made_s = [], 0.0
            started = now()
        if pending:
            yield _one(pending)

    def _fits_too(self, pending: list[Batch], piece: Batch) -> bool:
        if sum(map(len, pending)) + len(piece) > self.records:
            return False
        for batch in (pending[-1], piece):
            batch.size_bytes = batch.size_bytes or bytes_of(batch.records)
        return sum([batch.size_bytes for batch in pending]) + piece.size_bytes <= self.bytes


def _one(pieces: list[Batch]) -> Batch:
    """Consecutive pieces as one buffer; all of them have event times, or none has."""
    if len(pieces) == 1:
        return pieces[0]
    records = list(chain.from_iterable([piece.records for piece in pieces]))
    times = [piece.times for piece in pieces if piece.times is not None]
    return Batch(
        records,
        list(chain.from_iterable(times)) if times else None,
        size_bytes=sum([piece.size_bytes for piece in pieces]),
    )


def next_values(
    values: Iterator[Any], limit: int, limit_bytes: int = 1 << 20, *, first: int = 1
) -> list[Any]:
    """The next `limit` values, or fewer that already take `limit_bytes`.

    At least `first` values are taken before they are measured, which is for those of like size.
    """
    buffer: list[Any] = []
    size, count = 0, max(first, _FIRST)
    while len(buffer) < limit and size < limit_bytes:
        count = min(count, limit - len(buffer))
        chunk = list(islice(values, count))
        buffer += chunk
        if len(chunk) < count:
            break
        size += bytes_of(chunk)
        # As many as fit if the others are like these.
        count = min(2 * count, max(1, (limit_bytes - size) * len(buffer) // max(1, size)))
    return buffer


def bytes_of(values: Sequence[Any]) -> int:
    """About how many bytes of memory the values take together, with all that they refer to.

    It runs for every buffer that is made: some 30 ns for a pair of a word and a number.
    """
    if len(values) > 2 * _SAMPLE:
        sample = values[:: len(values) // _SAMPLE | 1]  # odd: records of two kinds often alternate
        try:
            encoded = len(_encode(values))
            return _walked_bytes(sample, _DEPTH) * encoded // len(_encode(sample))
        except (TypeError, ValueError, OverflowError, RecursionError):
            pass  # values that msgpack does not have, such as very large numbers
    return _walked_bytes(values, _DEPTH)


def _walked_bytes(values: Sequence[Any], depth: int) -> int:
    size = sum(map(getsizeof, values))
    inner = list(chain.from_iterable(map(_parts, values))) if depth else []
    if len(inner) > _MOST:
        sample = inner[:: len(inner) // _MOST + 1]
        return size + _walked_bytes(sample, depth - 1) * len(inner) // len(sample)
    return size + _walked_bytes(inner, depth - 1) if inner else size


def _stand_in(value: Any) -> Any:
    """Something of the size of an object that msgpack does not have."""
    parts = _parts(value)
    return list(parts) if parts else bytes(getsizeof(value))


_encode: Final = msgspec.msgpack.Encoder(enc_hook=_stand_in).encode


def _parts(value: Any) -> Iterable[Any]:
    """The values that a value refers to."""
    if isinstance(value, str | bytes | int | float):
        return ()
    if isinstance(value, _CONTAINERS):
        return value
    if isinstance(value, Mapping):
        return [*value.keys(), *value.values()]
    kind = type(value)
    names: Iterable[str] = (
        getattr(kind, "__struct_fields__", ())
        or getattr(kind, "__dataclass_fields__", ())
        or getattr(value, "__dict__", ())
    )
    return [getattr(value, name, None) for name in names]
