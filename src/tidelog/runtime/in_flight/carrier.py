"""Stores the in-flight data of one subtask, with the segments of all others, and reads it back.

Invariants: no object of its own: a checkpoint of ten thousand subtasks packs their in-flight data
into the same few segments as their logs, and a little of it goes into the manifest; a restore reads
all of it or fails.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING

from tidelog.changelog.block import open_block
from tidelog.changelog.chain import SubtaskLogChain
from tidelog.changelog.uploader import Uploader
from tidelog.checkpoint.manifest import Checkpoint, InFlightRef
from tidelog.effects import Offload
from tidelog.ids import CheckpointId, SeqNo, SubtaskId
from tidelog.runtime.in_flight.capture import ChannelData
from tidelog.storage.port import ObjectStore

if TYPE_CHECKING:
    from tidelog.state.objects.classes import RecordTypes

Types = Callable[[], "RecordTypes"]
"""What in-flight data may consist of, asked for when there is some: few checkpoints have any."""


def types_of(record_types: tuple[type, ...]) -> Types:
    @cache
    def types() -> "RecordTypes":
        from tidelog.state.objects.classes import RecordTypes  # noqa: PLC0415

        return RecordTypes(record_types)

    return types


@dataclass(slots=True)
class InFlightCarrier:
    """Stores in-flight data of one subtask, one checkpoint after the other."""

    subtask: SubtaskId
    uploader: Uploader
    types: Types
    _end: SeqNo = SeqNo(0)  # noqa: RUF009  # a number
    _chains: dict[CheckpointId, SubtaskLogChain] = field(default_factory=dict)

    async def store(
        self, checkpoint: CheckpointId, parts: Sequence[ChannelData]
    ) -> InFlightRef | None:
        """Make the data, if any, durable; raises SerializationError and the upload's error."""
        if not parts:
            return None
        from tidelog.runtime.in_flight.codec import encode  # noqa: PLC0415  # as `Types`

        offload = self.uploader.effects.offload
        encoded = await offload.run(encode, parts, self.types(), self._end)
        blocks = encoded.blocks
        self._end = blocks[-1].end
        log_chain = self._chains[checkpoint] = SubtaskLogChain(*self.subtask)
        buffers = size = 0
        for block in blocks:
            self.uploader.submit_block(log_chain, block)
            buffers, size = buffers + block.count, size + block.raw_bytes
        try:
            durable = await self.uploader.persist(log_chain.capture())
        finally:
            # What went into the manifest, or was given up, need not be uploaded any more.
            self.uploader.withdraw(log_chain)
        return InFlightRef(
            durable.ranges,
            durable.inline,
            buffers=buffers,
            bytes=size,
            inputs=tuple(sorted({(part.channel.consumer, part.channel.input) for part in parts})),
            types=encoded.types,
        )

    def completed(self, checkpoint: CheckpointId) -> None:
        """The checkpoint's manifest protects its objects from now on."""
        self._chains = {id: log for id, log in self._chains.items() if id > checkpoint}

    def objects(self) -> set[str]:
        """Segments that a checkpoint may yet refer to."""
        return set().union(*map(SubtaskLogChain.objects, self._chains.values()))


async def read_in_flight(
    store: ObjectStore, offload: Offload, checkpoint: Checkpoint, types: Types
) -> list[ChannelData]:
    """The in-flight data of all subtasks.

    Raises RestoreError (an object is gone), CorruptObjectError, FormatVersionError,
    SerializationError (the job does not name a type), and what the store raises.
    """
    from tidelog.changelog.reader import SegmentReader  # noqa: PLC0415  # as `Types`
    from tidelog.runtime.in_flight.codec import decode  # noqa: PLC0415

    reader = SegmentReader(store)
    parts: list[ChannelData] = []
    for operator, subtask in checkpoint.subtasks():
        if (ref := subtask.in_flight) is not None:
            what = f"in-flight data of {operator.id}-{subtask.index}"
            blocks = list(chain.from_iterable(await reader.read_ranges(ref.log)))
            blocks += [open_block(data, 0, what) for data in ref.inline]
            parts += await offload.run(decode, blocks, types())
    return parts


def in_flight_buffers(checkpoint: Checkpoint) -> int:
    buffers = 0
    for _, subtask in checkpoint.subtasks():
        buffers += subtask.in_flight.buffers if subtask.in_flight is not None else 0
    return buffers
