"""What records take in memory, and how large a buffer may be.

Invariants: every record of a buffer is measured, so one that is large and rare is never hidden; no
buffer holds more than its limit of bytes or records, but for a record that is larger alone.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from sys import getsizeof
from typing import Any, Final

from tidelog.runtime.channels.messages import Batch

_FIXED: Final = frozenset({int, float, bool, type(None)})
_FIXED_BYTES: Final = 32
_TEXT: Final = {str: getsizeof(""), bytes: getsizeof(b"")}
_SHORT: Final = 32
"""Up to this mean length strings count a byte per character, without a look at each."""
_CONTAINERS: Final = (list, tuple, set, frozenset, deque)
_DEPTH: Final = 8
_MOST: Final = 1 << 18
"""Values on one level of nesting that are measured each; of more some stand for all."""
_SAMPLE: Final = 1024
_FIRST: Final = 8
"""Values that are taken before they are measured; twice as many next time."""


@dataclass(frozen=True, slots=True)
class BufferLimit:
    """The most that one buffer holds."""

    bytes: int = 1 << 20
    records: int = 8192

    def fits(self, batch: Batch) -> bool:
        """Whether a batch that has been measured may be one buffer."""
        return batch.size_bytes <= self.bytes and len(batch.records) <= self.records

    def cut(self, batch: Batch) -> Iterator[Batch]:
        """The buffers that the records have to be cut into, measured."""
        batch.size_bytes = bytes_of(batch.records)
        count = len(batch.records)
        if count == 1 or self.fits(batch):
            yield batch
            return
        yield from self.cut(batch.part(0, count // 2))
        yield from self.cut(batch.part(count // 2, count))


def next_values(values: Iterator[Any], most: int, most_bytes: int = 1 << 20) -> list[Any]:
    """The next `most` values, or fewer that already take `most_bytes`."""
    taken: list[Any] = []
    size, count = 0, _FIRST
    while len(taken) < most and size < most_bytes:
        count = min(count, most - len(taken))
        some = list(islice(values, count))
        taken += some
        if len(some) < count:
            break
        size += bytes_of(some)
        count *= 2
    return taken


def bytes_of(values: Sequence[Any], depth: int = _DEPTH) -> int:
    """About how many bytes of memory the values take together, with all that they refer to.

    Runs for every record that is sent: values of one type take no loop in Python.
    """
    kinds = set(map(type, values))
    if kinds <= _FIXED:
        return _FIXED_BYTES * len(values)
    if len(kinds) == 1:
        (kind,) = kinds
        if kind in _TEXT:
            return _text(values, _TEXT[kind])
        if issubclass(kind, tuple) and 0 < len(values[0]) <= len(values) and depth:
            try:
                return sum(map(getsizeof, values)) + sum(
                    bytes_of(column, depth - 1) for column in zip(*values, strict=True)
                )
            except ValueError:
                pass  # tuples of several lengths
    return sum(map(getsizeof, values)) + (_inside(values, depth - 1) if depth else 0)


def _text(values: Sequence[str | bytes], empty: int) -> int:
    length = sum(map(len, values))
    if length <= _SHORT * len(values):
        return length + empty * len(values)
    return sum(map(getsizeof, values))


def _inside(values: Iterable[Any], depth: int) -> int:
    inner: list[Any] = []
    for value in values:
        inner.extend(_parts(value))
    if len(inner) > _MOST:
        sample = inner[:: len(inner) // _SAMPLE]
        return bytes_of(sample, depth) * len(inner) // len(sample)
    return bytes_of(inner, depth)


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
