"""Records between the steps of a query: buffers as bytes, a row of Spark's for each.

Invariant: what is decoded equals what was encoded, types included (`state.objects`); of one split
the buffers are numbered in the order of its records.

A record that is at or below the watermark of its own split when it is read may be late, though all
of its batch comes under the watermark of the batches before. It carries that watermark, so it is
handled when event time has come so far.
"""

from collections.abc import Iterable
from contextlib import suppress
from heapq import merge
from importlib import import_module
from itertools import chain, repeat
from operator import attrgetter, itemgetter
from typing import Any, Final, NamedTuple

import msgspec

from tidelog.runtime.channels.messages import Batch, KeyedBatch
from tidelog.runtime.operators.turn import OUTPUT_RECORDS
from tidelog.state.objects.classes import RecordTypes
from tidelog.state.objects.encoding import Shape, decode_records, encode_records

BRANCH: Final = "tidelog_branch"
DATA: Final = "tidelog_data"
TIMES: Final = "tidelog_times"
"""A `Mark`, in a row of its own."""
LATE: Final = "tidelog_late"
"""How many records were late in a call, in a row of its own."""


class Origin(msgspec.Struct, frozen=True, array_like=True, order=True):
    """Where a buffer comes from, and its place there."""

    split: str
    number: int


class _Stored(msgspec.Struct, frozen=True, array_like=True):
    origin: Origin
    side: int
    keys: list[bytes] | None
    times: list[int] | None
    passed: list[int | None] | None
    shapes: list[Shape]
    records: bytes


_TimedRow = tuple[Any, int | None, bytes, int | None]
"""A record, its event time, its encoded key and the watermark that it may be late by."""
_TIME: Final = 1
_PASSED: Final = 3
_time: Final = itemgetter(_TIME)
_origin: Final = attrgetter("origin")
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(_Stored).decode


def encode_batch(
    batch: Batch, origin: Origin, types: RecordTypes, passed: list[int | None] | None = None
) -> bytes:
    """A buffer as bytes; raises SerializationError for a record that has no such form.

    `passed` has for each record the watermark that it may be late by; None: for all none.
    """
    keys, side = (batch.keys, batch.side) if isinstance(batch, KeyedBatch) else (None, 0)
    shapes, records = encode_records(batch.records, types)
    return _encode(_Stored(origin, side, keys, batch.times, passed, shapes, records))


class GroupRecords(NamedTuple):
    """The records of a key group in a batch."""

    batches: list[KeyedBatch]
    late: list[tuple[int, KeyedBatch]]
    """Those to be handled when event time has come so far, in this order."""


def decode_batches(
    data: Iterable[bytes], group: bytes, types: RecordTypes, watermark: int
) -> GroupRecords:
    """The records of a key group, those of side 1, a table, first.

    Those of a split are in their order; of several splits the record with the least time is next.
    `watermark` is that after the batch: no record waits for a later one.
    """
    by_side: dict[int, dict[str, list[_Stored]]] = {}
    for buffer in sorted(map(_decode, data), key=_origin):
        by_side.setdefault(buffer.side, {}).setdefault(buffer.origin.split, []).append(buffer)
    decoded = GroupRecords([], [])
    for side, splits in sorted(by_side.items(), reverse=True):
        rows: list[list[_TimedRow]] = []
        for buffers in splits.values():
            rows.append(list(chain.from_iterable(_rows(buffer, types) for buffer in buffers)))
        timed = rows[0][0][_TIME] is not None
        merged = list(merge(*rows, key=_time) if timed else chain.from_iterable(rows))
        late_by: dict[int, list[_TimedRow]] = {}
        for row in merged:
            if (passed := row[_PASSED]) is not None:
                late_by.setdefault(min(passed, watermark), []).append(row)
        if late_by:
            merged = [row for row in merged if row[_PASSED] is None]
        for start in range(0, len(merged), OUTPUT_RECORDS):
            part = merged[start : start + OUTPUT_RECORDS]
            decoded.batches.append(_keyed(part, group, side, timed=timed))
        for time, part in late_by.items():
            decoded.late.append((time, _keyed(part, group, side, timed=timed)))
    decoded.late.sort(key=itemgetter(0))
    return decoded


def _keyed(rows: list[_TimedRow], group: bytes, side: int, *, timed: bool) -> KeyedBatch:
    records, times, keys, _ = zip(*rows, strict=True)
    groups = [group] * len(keys)
    return KeyedBatch(list(records), list(times) if timed else None, list(keys), groups, side)


def decode_records_of(data: bytes, types: RecordTypes) -> list[Any]:
    """The records of a buffer without keys."""
    return _records(_decode(data), types)


def _rows(buffer: _Stored, types: RecordTypes) -> Iterable[_TimedRow]:
    records = _records(buffer, types)
    nothing: Iterable[None] = repeat(None)
    times = nothing if buffer.times is None else buffer.times
    passed = nothing if buffer.passed is None else buffer.passed
    return zip(records, times, buffer.keys or (), passed, strict=False)


def _records(buffer: _Stored, types: RecordTypes) -> list[Any]:
    """Raises SerializationError for records of a class that is in no module."""
    for shape in buffer.shapes:
        if shape.module:
            # Another process of the query has made the record, whose job may have imported more.
            with suppress(ImportError):
                import_module(shape.module)
    return decode_records(buffer.shapes, buffer.records, types)
