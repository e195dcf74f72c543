"""In-flight data as bytes.

Invariants: what is decoded equals what was encoded, types included; only types that are allowed are
ever built from stored bytes, so a damaged or forged object runs no code of its choice. Keys are not
stored: the partitioner finds them again.
Format: docs/format.md, "In-flight data".
"""

import io
import pickle
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from tidelog.changelog.block import Block, BlockKind, SealedBlock, seal_opaque
from tidelog.errors import CorruptObjectError, TidelogError, UnstorableError
from tidelog.ids import SeqNo
from tidelog.runtime.channels.channel import InFlightData
from tidelog.runtime.channels.messages import Batch, Watermark
from tidelog.runtime.in_flight.capture import ChannelData, ChannelId

BLOCK_BYTES = 8 << 20
"""Encoded buffers that fill a block."""

PICKLE_PROTOCOL = 5

STANDARD_TYPES = frozenset(
    {
        ("datetime", "date"),
        ("datetime", "datetime"),
        ("datetime", "time"),
        ("datetime", "timedelta"),
        ("datetime", "timezone"),
        ("decimal", "Decimal"),
        ("fractions", "Fraction"),
        ("uuid", "UUID"),
        ("collections", "OrderedDict"),
        ("builtins", "bytearray"),
        ("builtins", "complex"),
        ("builtins", "frozenset"),
        ("builtins", "range"),
        ("builtins", "set"),
        ("builtins", "slice"),
    }
)
"""Types of the standard library that records may hold, by module and name."""


class _Buffer(msgspec.Struct, frozen=True, array_like=True, tag=0):
    records: bytes
    times: list[int] | None


class _Mark(msgspec.Struct, frozen=True, array_like=True, tag=1):
    time: int


class _Part(msgspec.Struct, frozen=True, array_like=True):
    """In-flight data of one end of a channel; one that is long goes on in the next block."""

    consumer: str
    input: int
    producer_subtask: int
    consumer_subtask: int
    behind: bool
    data: list[_Buffer | _Mark]


class RecordTypes:
    """Types, besides the standard ones, that records of a job are made of."""

    def __init__(self, types: Iterable[type] = ()) -> None:
        self._types = {(kind.__module__, kind.__qualname__): kind for kind in types}

    def dumps(self, records: list[Any]) -> bytes:
        """Raises UnstorableError for a record of another type."""
        stream = io.BytesIO()
        try:
            _Pickler(stream, self).dump(records)
        except TidelogError:
            raise
        except Exception as error:  # whatever a type's own pickling raises
            raise _unstorable(f"a record that cannot be pickled: {error}") from error
        return stream.getvalue()

    def loads(self, data: bytes) -> list[Any]:
        """Raises UnstorableError for types that the job does not name."""
        records = _Unpickler(io.BytesIO(data), self).load()
        if not isinstance(records, list):
            raise TypeError(f"{type(records).__name__} where a list was stored")
        return records

    def allows(self, module: str, name: str) -> bool:
        """Whether records may hold this type."""
        return (module, name) in STANDARD_TYPES or (module, name) in self._types

    def find(self, module: str, name: str) -> type | None:
        """A type the job has named."""
        return self._types.get((module, name))


class _Pickler(pickle.Pickler):
    def __init__(self, stream: io.BytesIO, types: RecordTypes) -> None:
        super().__init__(stream, PICKLE_PROTOCOL)
        self._allowed = types

    def reducer_override(self, obj: Any) -> Any:
        kind = obj if isinstance(obj, type) else type(obj)
        if not self._allowed.allows(kind.__module__, kind.__qualname__):
            raise _unstorable(f"{kind.__module__}.{kind.__qualname__}")
        return NotImplemented


class _Unpickler(pickle.Unpickler):
    def __init__(self, stream: io.BytesIO, types: RecordTypes) -> None:
        super().__init__(stream)
        self._allowed = types

    def find_class(self, module: str, name: str) -> Any:
        if not self._allowed.allows(module, name):
            raise _unstorable(f"{module}.{name}")
        return self._allowed.find(module, name) or super().find_class(module, name)


def encode(parts: Sequence[ChannelData], types: RecordTypes, first: SeqNo) -> list[SealedBlock]:
    """Blocks with the data, numbered from `first`; raises UnstorableError."""
    blocks: list[SealedBlock] = []
    held: list[_Part] = []
    size = 0

    def seal_held() -> None:
        nonlocal held, size, first
        if held:
            count = sum(len(part.data) for part in held)
            payload = msgspec.msgpack.encode(held)
            blocks.append(seal_opaque(BlockKind.IN_FLIGHT, payload, count, first))
            first = SeqNo(first + count)
            held, size = [], 0

    for part in parts:
        data: list[_Buffer | _Mark] = []
        for message in part.data:
            data.append(_encoded(message, types))
            size += _size(data[-1])
            if size >= BLOCK_BYTES:
                held.append(_part(part.channel, data))
                data = []
                seal_held()
        if data:
            held.append(_part(part.channel, data))
    seal_held()
    return blocks


def decode(blocks: Iterable[Block], types: RecordTypes) -> list[ChannelData]:
    """What was encoded, a long part in pieces; raises CorruptObjectError, UnstorableError."""
    return [
        ChannelData(
            ChannelId(
                part.consumer,
                part.input,
                part.producer_subtask,
                part.consumer_subtask,
                part.behind,
            ),
            [_decoded(message, block, types) for message in part.data],
        )
        for block in blocks
        for part in _parts(block)
    ]


def _parts(block: Block) -> list[_Part]:
    try:
        return msgspec.msgpack.decode(block.payload(), type=list[_Part])
    except msgspec.MsgspecError as error:
        raise _corrupt(block, str(error)) from error


def _decoded(message: _Buffer | _Mark, block: Block, types: RecordTypes) -> InFlightData:
    if isinstance(message, _Mark):
        return Watermark(message.time)
    try:
        records = types.loads(message.records)
    except TidelogError:
        raise
    except Exception as error:  # whatever damaged bytes make of a pickle
        raise _corrupt(block, f"{type(error).__name__}: {error}") from error
    return Batch(records, message.times)


def _encoded(message: InFlightData, types: RecordTypes) -> _Buffer | _Mark:
    if isinstance(message, Watermark):
        return _Mark(message.time)
    return _Buffer(types.dumps(message.records), message.times)


def _size(message: _Buffer | _Mark) -> int:
    if isinstance(message, _Mark):
        return 8
    return len(message.records) + 8 * len(message.times or ())


def _part(channel: ChannelId, data: list[_Buffer | _Mark]) -> _Part:
    return _Part(
        channel.consumer,
        channel.input,
        channel.producer_subtask,
        channel.consumer_subtask,
        channel.behind,
        data,
    )


def _corrupt(block: Block, found: str) -> CorruptObjectError:
    return CorruptObjectError(
        f"in-flight data in object {block.name} at byte {block.offset}",
        expected="buffers of records",
        found=found,
        action="restore an older slot, or drop the in-flight data with --drop-in-flight "
        "if losing it is acceptable",
    )


def _unstorable(found: str) -> UnstorableError:
    return UnstorableError(
        "records in flight",
        expected="values of Python's basic types, dates, decimals, UUIDs, and types named in "
        "Job(..., record_types=...)",
        found=found,
        action="name the type in the job's record_types; until then its checkpoints stay aligned",
    )
