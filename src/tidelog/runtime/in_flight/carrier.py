"""Makes the in-flight data of one subtask durable, with the segments of all others.

Invariant: no object of its own: a checkpoint of ten thousand subtasks packs their in-flight data
into the same few segments as their logs, and a little of it goes into the manifest.
"""

from collections.abc import Sequence

from tidelog.changelog.block import SealedBlock
from tidelog.checkpoint.manifest import InFlightRef
from tidelog.dstl.chain import LogChain
from tidelog.dstl.uploader import Uploader
from tidelog.effects import Effects
from tidelog.ids import CheckpointId, SeqNo
from tidelog.runtime.in_flight.capture import ChannelData
from tidelog.runtime.in_flight.codec import RecordTypes, encode


class InFlightCarrier:
    """Stores in-flight data of one subtask, one checkpoint after the other."""

    def __init__(
        self,
        operator: str,
        subtask: int,
        uploader: Uploader,
        effects: Effects,
        types: RecordTypes,
    ) -> None:
        self._operator = operator
        self._subtask = subtask
        self._uploader = uploader
        self._effects = effects
        self._types = types
        self._end = SeqNo(0)
        self._chains: dict[CheckpointId, LogChain] = {}

    async def store(
        self, checkpoint: CheckpointId, parts: Sequence[ChannelData]
    ) -> InFlightRef | None:
        """Make the data durable; None when there is none.

        Raises UnstorableError for records of an unknown type, and the upload's error.
        """
        if not parts:
            return None
        blocks = await self._effects.offload.run(encode, parts, self._types, self._end)
        self._end = blocks[-1].end
        chain = self._chains[checkpoint] = LogChain(self._operator, self._subtask)
        for block in blocks:
            self._uploader.submit_block(chain, block)
        try:
            stored = await self._uploader.persist(chain.capture())
        finally:
            # What went into the manifest, or was given up, need not be uploaded any more.
            self._uploader.withdraw(chain)
        return InFlightRef(
            stored.ranges,
            stored.inline,
            buffers=sum(block.count for block in blocks),
            bytes=_raw_bytes(blocks),
        )

    def completed(self, checkpoint: CheckpointId) -> None:
        """The checkpoint's manifest protects its objects from now on."""
        self._chains = {id: chain for id, chain in self._chains.items() if id > checkpoint}

    def objects(self) -> set[str]:
        """Segments that a checkpoint may yet refer to."""
        return set().union(*(chain.objects() for chain in self._chains.values()))


def _raw_bytes(blocks: Sequence[SealedBlock]) -> int:
    return sum(block.raw_bytes for block in blocks)
