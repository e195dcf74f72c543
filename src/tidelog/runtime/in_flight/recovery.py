"""Reads the in-flight data of a checkpoint back.

Invariant: all of it is read, or the restore fails; only a restore that was told to drop it goes on
without, and says how much that was.
"""

from tidelog.changelog.block import Block, open_block
from tidelog.checkpoint.manifest import Checkpoint, InFlightRef
from tidelog.dstl.reader import SegmentReader
from tidelog.effects import Offload
from tidelog.runtime.in_flight.capture import ChannelData
from tidelog.runtime.in_flight.codec import RecordTypes, decode
from tidelog.storage.port import ObjectStore


async def read_in_flight(
    store: ObjectStore, offload: Offload, checkpoint: Checkpoint, types: RecordTypes
) -> list[ChannelData]:
    """The data of all subtasks.

    Raises RestoreError (an object is gone), CorruptObjectError, FormatVersionError,
    UnstorableError (the job does not name a type), and what the store raises.
    """
    reader = SegmentReader(store, 0)
    parts: list[ChannelData] = []
    for operator, subtask in checkpoint.subtasks():
        if subtask.in_flight is not None:
            what = f"in-flight data of {operator.id}-{subtask.index}"
            blocks = await _blocks(reader, subtask.in_flight, what)
            parts += await offload.run(decode, blocks, types)
    return parts


def in_flight_size(checkpoint: Checkpoint) -> tuple[int, int]:
    """Buffers and bytes in flight."""
    refs = [subtask.in_flight for _, subtask in checkpoint.subtasks()]
    known = [ref for ref in refs if ref is not None]
    return sum(ref.buffers for ref in known), sum(ref.bytes for ref in known)


async def _blocks(reader: SegmentReader, ref: InFlightRef, what: str) -> list[Block]:
    ranges = await reader.read_ranges(ref.log)
    inline = [open_block(data, 0, what) for data in ref.inline]
    return [*(block for blocks in ranges for block in blocks), *inline]
