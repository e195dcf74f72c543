"""Rows of many records each, of those that a flush finds in one bucket of time and one key group.

Invariants: behind the state's id a row's key is `bucket | number of the first record`; the records
of a batch are encoded as in rows of their own, so it becomes such rows without knowing their types;
a key group has no more records in batches of a bucket than can be read at once.
Format: docs/internals/format.md, "State kinds".
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, Final

import msgspec

from tidelog.changelog.change import ROW_PREFIX_BYTES
from tidelog.state.backend import KeyedBackend
from tidelog.state.handles.timers import decode_time, encode_time
from tidelog.state.objects.values import UntypedValues
from tidelog.state.timed_rows import NUMBER_BYTES, Entry, Held, TimedRows, check_records

BATCHES: Final = "timed-batches"
"""The kind of such rows."""
MOST_BATCHED: Final = 8192
"""Records of a bucket and a key group in batches: all are read where one is looked for ..."""
BATCHED_BYTES: Final = 1 << 20
"""... and what they may take in memory."""

Placed = tuple[bytes, Held]
"""A place, which is a key group with the encoded key, and what is held there."""
Batch = tuple[list[bytes], list[int], list[int], list[Any]]
"""Keys, times, numbers less that of the first, and records."""
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Batch).decode


class TimedBatches(TimedRows):
    """The batches of one state of one subtask."""

    __slots__ = ()

    @classmethod
    def of(
        cls, backend: KeyedBackend, name: str, schema: str, values: UntypedValues
    ) -> "TimedBatches":
        """The batches of the records of the state `name`, which are `values`."""
        info = backend.registry.register(batches_of(name), BATCHES, (schema,))

        def encode_many(batches: list[Batch]) -> list[bytes]:
            records = iter(values.encode_many(list(chain.from_iterable(b[3] for b in batches))))
            return [_encode((b[0], b[1], b[2], list(islice(records, len(b[0]))))) for b in batches]

        def decode(data: bytes) -> Batch:
            keys, times, after_first, records = _decode(data)
            return keys, times, after_first, list(map(values.decode, records))

        rows = backend.rows(
            lambda batch: encode_many([batch])[0],
            decode,
            scanned=True,
            cached=False,
            encode_many=encode_many,
        )
        return cls(rows, info.id.to_bytes(2, "big"), backend.table)

    def put_together(
        self, bucket: int, records: Sequence[Placed], batched: dict[bytes, int], size: float
    ) -> list[bytes]:
        """Put records of a bucket, in the order of their numbers, in one row for each key group.

        `batched` is how many records each key group has in batches, which is counted on; `size`
        the memory of one. Returns the keys of the rows: none, and nothing is put, where a key group
        would have too many. Raises as `TimedRows.put`.
        """
        of_group: defaultdict[bytes, list[Placed]] = defaultdict(list)
        for each in records:
            of_group[each[0][:2]].append(each)
        most = min(MOST_BATCHED, BATCHED_BYTES / max(1.0, size))
        if any(batched.get(group, 0) + len(some) > most for group, some in of_group.items()):
            return []
        rows: dict[bytes, Batch] = {}
        time = encode_time(bucket)
        for group, some in of_group.items():
            first = some[0][1][1]
            rows[group + self._state + time + first.to_bytes(NUMBER_BYTES, "big")] = batch = (
                [place[2:] for place, _ in some],
                [held[0] for _, held in some],
                [held[1] - first for _, held in some],
                [held[2] for _, held in some],
            )
            check_records(batch[-1])
            batched[group] = batched.get(group, 0) + len(some)
        self._rows.put_many(rows)
        return list(rows)

    def delete_rows(self, rows: Iterable[bytes]) -> None:
        self._rows.delete_many(rows)

    def of_group(self, bucket: int, group: bytes) -> Iterator[Entry]:
        for row, batch in self.range_of_group(bucket, group):
            yield from _entries(group, row[ROW_PREFIX_BYTES:], batch)

    def delete_group(self, bucket: int, group: bytes) -> None:
        """Delete the batches of a key group in a bucket."""
        self._rows.delete_many([row for row, _ in self.range_of_group(bucket, group)])


def batches_of(name: str) -> str:
    """The name of the state with the batches of the records of a state."""
    return f"{name}-batches"


def keys_of(data: bytes) -> list[bytes]:
    """The keys of a batch's records, from its value; raises MsgspecError for what is none."""
    keys: list[bytes] = _decode(data)[0]
    return keys


def stored_entries(group: bytes, own: bytes, data: bytes) -> list[Entry]:
    """The records of a stored batch, each with its value still encoded.

    `own` is the row key without key group and state id, `data` the row's value.
    """
    return list(_entries(group, own, _decode(data)))


def _entries(group: bytes, own: bytes, batch: Batch) -> Iterator[Entry]:
    bucket, first = decode_time(own[:8]), int.from_bytes(own[8:], "big")
    for key, time, after_first, record in zip(*batch, strict=True):
        yield bucket, group + key, (time, first + after_first, record)
