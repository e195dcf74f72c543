"""Columns: the payload of a block of changes, as Python objects and as Arrow.

Invariants: only row keys that ascend strictly are encoded; nothing is decoded from a payload
whose lengths do not add up to exactly its sections.
Format: docs/internals/format.md, "Payload of kind 1: changes".
"""

import struct
import sys
from array import array
from collections.abc import Callable, Sequence
from io import BytesIO
from itertools import islice
from operator import lt
from typing import TYPE_CHECKING, Final, cast

import msgspec

from tidelog.changelog.change import OP_DELETE, OP_PUT, ROW_PREFIX_BYTES, ChangeBatch
from tidelog.errors import CorruptObjectError, InvariantError
from tidelog.ids import SeqNo
from tidelog.options.units import plural

if TYPE_CHECKING:
    import pyarrow

MAX_PAYLOAD_BYTES: Final = 2**31 - 1
LARGE_PAYLOAD: Final = 8 << 20
"""Bytes from which a payload is never copied as a whole, but as it is compressed."""

CorruptError = Callable[[str, str], CorruptObjectError]
"""Makes the error of a damaged block from what was expected and what was found."""


def encode(batch: ChangeBatch) -> tuple[list[bytes], int]:
    """The payload of a batch in parts, of which large values are not copied, and how many bytes of
    it are row keys.

    Raises InvariantError for a batch that is empty, not strictly ascending, or above 2 GiB.
    """
    _check_rows(batch)
    check_size(batch.first, batch.raw_bytes)
    present = cast("Sequence[bytes]", batch.values)
    ops = bytes([OP_PUT]) * len(batch)
    joins = batch.raw_bytes < LARGE_PAYLOAD
    try:
        values = [b"".join(present)] if joins else [bytes(value) for value in present]
    except TypeError:
        # There are deletes: a flush without any is not searched for them.
        ops = bytes([OP_DELETE if value is None else OP_PUT for value in batch.values])
        values = [value or b"" for value in batch.values]
    keys = b"".join(batch.keys)
    return [ops, _stored(batch.key_lengths), keys, _stored(batch.value_lengths), *values], len(keys)


def check_size(first: SeqNo, payload_bytes: int) -> None:
    """Raise InvariantError when the payload of the changes from `first` is too long."""
    if payload_bytes > MAX_PAYLOAD_BYTES:
        raise InvariantError(
            f"block of changes from {first}",
            expected=f"a payload of at most {MAX_PAYLOAD_BYTES} bytes",
            found=f"{payload_bytes} bytes",
            action="lower the byte limit of the write buffer",
        )


def _stored(lengths: "array[int]") -> bytes:
    """The lengths as u32, little-endian."""
    if sys.byteorder == "little":
        return lengths.tobytes()
    swapped = lengths[:]
    swapped.byteswap()
    return swapped.tobytes()


def _ascend(keys: Sequence[bytes]) -> bool:
    return all(map(lt, keys, islice(keys, 1, None)))


def _check_rows(batch: ChangeBatch) -> None:
    keys = batch.keys
    if not keys or len(keys) != len(batch.values):
        actual = f"{plural(len(keys), 'row key')} and {plural(len(batch.values), 'value')}"
    elif not _ascend(keys):
        # The header takes its key groups from the ends: a rescale would skip changes silently.
        actual = "row keys out of order or repeated"
    else:
        return
    raise InvariantError(
        f"changes from {batch.first}",
        expected="one or more, their row keys strictly ascending",
        found=actual,
        action="report this as a bug of the write buffer",
    )


class Columns(msgspec.Struct, frozen=True):
    """The sections of one payload; they fill it exactly once both lengths are checked."""

    ops: bytes
    key_lengths: bytes
    keys: memoryview
    value_lengths: bytes
    values: memoryview
    corrupt: CorruptError

    @classmethod
    def of(cls, payload: bytes, count: int, key_bytes: int, corrupt: CorruptError) -> "Columns":
        """The sections of the payload of `count` changes; raises CorruptObjectError."""
        keys = 5 * count
        value_lengths = keys + key_bytes
        values = value_lengths + 4 * count
        if not count or values > len(payload):
            expected = f"a payload of 1 change or more, {values} bytes or more"
            raise corrupt(expected, f"{plural(count, 'change')}, {len(payload)} bytes")
        ops = payload[:count]
        if ops.count(OP_PUT) + ops.count(OP_DELETE) != count:
            raise corrupt("puts and deletes", "another operation")
        view = memoryview(payload)
        return cls(
            ops,
            payload[count:keys],
            view[keys:value_lengths],
            payload[value_lengths:values],
            view[values:],
            corrupt,
        )

    @classmethod
    def joined(cls, parts: "Sequence[Columns]") -> "Columns":
        """The columns of all parts, one after the other; raises CorruptObjectError."""
        if len(parts) == 1:
            return parts[0]
        for part in parts:
            # Lengths that do not add up would shift all rows of the parts after it.
            part._check_sum(sum(part._lengths(part.key_lengths)), part.keys)
            part._check_sum(sum(part._lengths(part.value_lengths)), part.values)
        return cls(
            b"".join([part.ops for part in parts]),
            b"".join([part.key_lengths for part in parts]),
            memoryview(b"".join([part.keys for part in parts])),
            b"".join([part.value_lengths for part in parts]),
            memoryview(b"".join([part.values for part in parts])),
            parts[0].corrupt,
        )

    def changes(self, first: SeqNo) -> ChangeBatch:
        """The changes from number `first` on; raises CorruptObjectError."""
        keys = self._split(self.keys, self.key_lengths)
        if not _ascend(keys):
            # A replay would keep an older change of a row, and a rescale lose some.
            raise self.corrupt("row keys that ascend strictly", "keys out of order or repeated")
        values = self._split(self.values, self.value_lengths)
        if OP_DELETE not in self.ops:
            return ChangeBatch(first, keys, values)
        rows = zip(self.ops, values, strict=True)
        return ChangeBatch(first, keys, [None if op == OP_DELETE else v for op, v in rows])

    def record_batch(self) -> "pyarrow.RecordBatch":
        """The changes as described at `block.record_batch`; raises CorruptObjectError."""
        # Heavy and optional: loaded only when Arrow is asked for.
        import pyarrow as pa  # noqa: PLC0415
        import pyarrow.compute as pc  # noqa: PLC0415

        count = len(self.ops)

        def binary(column: memoryview, lengths: bytes, validity: pa.Buffer | None) -> pa.Array:
            u32_lengths = pa.Array.from_buffers(pa.uint32(), count, [None, pa.py_buffer(lengths)])
            self._check_sum(pc.sum(u32_lengths).as_py(), column)
            # The sum is below 2^31, so these u32 are bit for bit the i32 that Arrow wants.
            start = pa.array([0], pa.uint32())
            offsets = pc.cumulative_sum(pa.concat_arrays([start, u32_lengths])).buffers()[1]
            buffers = [validity, offsets, pa.py_buffer(column)]
            return pa.Array.from_buffers(pa.binary(), count, buffers)

        op = pa.Array.from_buffers(pa.uint8(), count, [None, pa.py_buffer(self.ops)])
        key = binary(self.keys, self.key_lengths, None)
        value = binary(self.values, self.value_lengths, pc.equal(op, OP_PUT).buffers()[1])
        if pc.min(pc.binary_length(key)).as_py() < ROW_PREFIX_BYTES:
            raise self.corrupt(f"row keys of {ROW_PREFIX_BYTES} bytes or more", "shorter ones")

        def number(start: int) -> pa.Array:
            octets = pc.binary_slice(key, start, start + 2).buffers()[2]
            big_endian = pa.Array.from_buffers(pa.uint16(), count, [None, octets])
            byte = pa.scalar(8, pa.uint16())
            return pc.bit_wise_or(pc.shift_left(big_endian, byte), pc.shift_right(big_endian, byte))

        names = ["op", "key_group", "state_id", "key", "value"]
        return pa.RecordBatch.from_arrays([op, number(0), number(2), key, value], names=names)

    def _split(self, column: memoryview, lengths: bytes) -> list[bytes]:
        row_lengths = self._lengths(lengths)
        self._check_sum(sum(row_lengths), column)
        # Reading on and on needs no running sum, and takes half the time of slicing.
        return list(map(BytesIO(column).read, row_lengths))

    def _lengths(self, data: bytes) -> tuple[int, ...]:
        return struct.unpack(f"<{len(self.ops)}I", data)

    def _check_sum(self, total: int, column: memoryview) -> None:
        if total != len(column):
            raise self.corrupt(f"lengths that add up to {len(column)} bytes", f"{total}")
