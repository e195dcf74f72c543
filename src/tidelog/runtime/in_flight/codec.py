"""In-flight data as bytes.

Invariants: what is decoded equals what was encoded, types included; a damaged or forged object runs
no code of its choice (`tidelog.state.objects`). Keys are not stored: the partitioner finds them
again. Format: docs/internals/format.md, "Payload of kind 4".
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter

import msgspec
from msgspec.structs import asdict, astuple

from tidelog.changelog.block import Block, BlockKind, SealedBlock, seal_opaque
from tidelog.errors import OLDER_CHECKPOINT, CorruptObjectError, TidelogError
from tidelog.ids import SeqNo
from tidelog.runtime.channels.channel import InFlightData
from tidelog.runtime.channels.messages import Batch, Watermark
from tidelog.runtime.in_flight.capture import ChannelData, ChannelId
from tidelog.state.objects.classes import RecordTypes
from tidelog.state.objects.encoding import Shape, decode_records, encode_records

BLOCK_BYTES = 8 << 20
"""Encoded buffers that fill a block."""


class _Records(msgspec.Struct, frozen=True, array_like=True, tag=0):
    shapes: list[Shape]
    records: bytes
    times: list[int] | None


class _Mark(msgspec.Struct, frozen=True, array_like=True, tag=1):
    time: int


_Message = _Records | _Mark


class _Part(ChannelId, frozen=True, array_like=True):
    """In-flight data of one end of a channel; a long one is continued in the next block."""

    data: list[_Message]


@dataclass(frozen=True, slots=True)
class Encoded:
    """In-flight data in blocks, and the types of the job that it is made of, `module:name`."""

    blocks: list[SealedBlock]
    types: tuple[str, ...]


def encode(parts: Sequence[ChannelData], types: RecordTypes, first: SeqNo) -> Encoded:
    """Blocks with the data, numbered from `first`; raises SerializationError."""
    blocks: list[SealedBlock] = []
    used: set[str] = set()
    for block_parts in _filled(parts, types):
        messages = list(chain.from_iterable(map(attrgetter("data"), block_parts)))
        for message in messages:
            shapes = message.shapes if isinstance(message, _Records) else ()
            used |= {f"{shape.module}:{shape.name}" for shape in shapes if shape.module}
        payload = msgspec.msgpack.encode(block_parts)
        blocks.append(seal_opaque(BlockKind.IN_FLIGHT, payload, len(messages), first))
        first = SeqNo(first + len(messages))
    return Encoded(blocks, tuple(sorted(used)))


def _filled(parts: Iterable[ChannelData], types: RecordTypes) -> Iterator[list[_Part]]:
    """The parts of each block, a long one in pieces."""
    block_parts: list[_Part] = []
    size = 0
    for part in parts:
        data: list[_Message] = []
        for message in part.data:
            encoded = _encoded(message, types)
            data.append(encoded)
            size += _size(encoded)
            if size >= BLOCK_BYTES:
                yield [*block_parts, _Part(**asdict(part.channel), data=data)]
                block_parts, data, size = [], [], 0
        if data:
            block_parts.append(_Part(**asdict(part.channel), data=data))
    if block_parts:
        yield block_parts


def decode(blocks: Iterable[Block], types: RecordTypes) -> list[ChannelData]:
    """What was encoded, a long part in pieces; raises CorruptObjectError, SerializationError."""
    parts: list[ChannelData] = []
    for block in blocks:
        for part in _parts(block):
            data = [_decoded(message, block, types) for message in part.data]
            parts.append(ChannelData(ChannelId(*astuple(part)[:-1]), data))
    return parts


def _parts(block: Block) -> list[_Part]:
    try:
        return msgspec.msgpack.decode(block.payload(), type=list[_Part])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _corrupt(block, str(error)) from error


def _decoded(message: _Message, block: Block, types: RecordTypes) -> InFlightData:
    if isinstance(message, _Mark):
        return Watermark(message.time)
    try:
        records = decode_records(message.shapes, message.records, types)
    except TidelogError:
        raise
    except Exception as error:  # whatever damaged bytes make of records
        raise _corrupt(block, f"{type(error).__name__}: {error}") from error
    return Batch(records, message.times)


def _encoded(message: InFlightData, types: RecordTypes) -> _Message:
    if isinstance(message, Watermark):
        return _Mark(message.time)
    return _Records(*encode_records(message.records, types), message.times)


def _size(message: _Message) -> int:
    if isinstance(message, _Mark):
        return 8
    return len(message.records) + 8 * len(message.times or ())


def _corrupt(block: Block, actual: str) -> CorruptObjectError:
    return CorruptObjectError(
        f"in-flight data in object {block.name} at byte {block.offset}",
        expected="buffers of records",
        found=actual,
        action=f"{OLDER_CHECKPOINT}, or drop the in-flight data with --drop-in-flight if losing "
        "it is acceptable",
    )
