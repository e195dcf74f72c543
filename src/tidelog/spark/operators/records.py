"""Records between the steps of a query: buffers as bytes, a row of Spark's for each.

Invariant: what is decoded equals what was encoded, types included (`state.objects`); of one split
the buffers are numbered in the order of its records.
"""

from collections.abc import Iterable
from contextlib import suppress
from heapq import merge
from importlib import import_module
from itertools import chain, repeat
from operator import attrgetter, itemgetter
from typing import Any, Final

import msgspec

from tidelog.runtime.channels.messages import Batch, KeyedBatch
from tidelog.runtime.operators.turn import OUTPUT_RECORDS
from tidelog.state.objects.classes import RecordTypes
from tidelog.state.objects.encoding import Shape, decode_records, encode_records

BRANCH: Final = "tidelog_branch"
DATA: Final = "tidelog_data"
MARK: Final = "tidelog_mark"


class Origin(msgspec.Struct, frozen=True, array_like=True, order=True):
    """Where a buffer comes from, and its place there."""

    split: str
    number: int


class _Stored(msgspec.Struct, frozen=True, array_like=True):
    origin: Origin
    side: int
    keys: list[bytes] | None
    times: list[int] | None
    shapes: list[Shape]
    records: bytes


_TimedRow = tuple[Any, int | None, bytes]
"""A record, its event time and its encoded key."""
_TIME: Final = 1
_time: Final = itemgetter(_TIME)
_origin: Final = attrgetter("origin")
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(_Stored).decode


def encode_batch(batch: Batch, origin: Origin, types: RecordTypes) -> bytes:
    """A buffer as bytes; raises SerializationError for a record that has no such form."""
    keys, side = (batch.keys, batch.side) if isinstance(batch, KeyedBatch) else (None, 0)
    shapes, records = encode_records(batch.records, types)
    return _encode(_Stored(origin, side, keys, batch.times, shapes, records))


def decode_batches(data: Iterable[bytes], group: bytes, types: RecordTypes) -> list[KeyedBatch]:
    """The records of a key group, those of side 1, a table, first.

    Those of a split are in their order; of several splits the record with the least time is next.
    """
    by_side: dict[int, dict[str, list[_Stored]]] = {}
    for buffer in sorted(map(_decode, data), key=_origin):
        by_side.setdefault(buffer.side, {}).setdefault(buffer.origin.split, []).append(buffer)
    batches: list[KeyedBatch] = []
    for side, splits in sorted(by_side.items(), reverse=True):
        rows: list[list[_TimedRow]] = []
        for buffers in splits.values():
            rows.append(list(chain.from_iterable(_rows(buffer, types) for buffer in buffers)))
        timed = rows[0][0][_TIME] is not None
        merged = list(merge(*rows, key=_time) if timed else chain.from_iterable(rows))
        for start in range(0, len(merged), OUTPUT_RECORDS):
            records, times, keys = zip(*merged[start : start + OUTPUT_RECORDS], strict=True)
            batch = KeyedBatch(list(records), list(times) if timed else None, list(keys))
            batch.groups, batch.side = [group] * len(keys), side
            batches.append(batch)
    return batches


def decode_records_of(data: bytes, types: RecordTypes) -> list[Any]:
    """The records of a buffer without keys."""
    return _records(_decode(data), types)


def _rows(buffer: _Stored, types: RecordTypes) -> Iterable[_TimedRow]:
    records = _records(buffer, types)
    times: Iterable[int | None] = repeat(None) if buffer.times is None else buffer.times
    return zip(records, times, buffer.keys or (), strict=False)


def _records(buffer: _Stored, types: RecordTypes) -> list[Any]:
    """Raises SerializationError for records of a class that is in no module."""
    for shape in buffer.shapes:
        if shape.module:
            # Another process of the query has made the record, whose job may have imported more.
            with suppress(ImportError):
                import_module(shape.module)
    return decode_records(buffer.shapes, buffer.records, types)
