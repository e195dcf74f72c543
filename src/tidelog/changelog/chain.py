"""The log of one subtask since its last materialization.

Invariants:
- pieces are contiguous: each starts where the one before ends;
- a piece is either pending (its bytes are still here) or durable (a range of a segment);
- pending bytes are dropped only when they became durable or a materialization covers them, so a
  failed upload loses nothing.
"""

from collections import deque
from collections.abc import Iterable

import msgspec

from tidelog.changelog.block import SealedBlock, seal
from tidelog.changelog.change import ChangeBatch
from tidelog.changelog.segment import LogRange
from tidelog.changelog.upload_config import COMPRESSION_LEVEL
from tidelog.errors import InvariantError
from tidelog.ids import SeqNo


class Piece(msgspec.Struct, eq=False):
    """One flushed batch on its way to the object store: open, then sealed, then durable.

    Two pieces are never equal, so a piece can be in a set.
    """

    batch: ChangeBatch | None
    """The changes of an open piece."""
    first: SeqNo
    end: SeqNo
    raw_bytes: int
    queued_at: float
    sealed: SealedBlock | None = None
    """The block of a sealed piece."""
    durable: LogRange | None = None
    """Where the block of a durable piece is stored."""
    level: int = COMPRESSION_LEVEL
    """Compression level that an open piece is sealed with."""
    number: int = -1
    """Place in its chain, counted from 0; the chain sets it."""

    @classmethod
    def of_batch(cls, batch: ChangeBatch, now: float, level: int = COMPRESSION_LEVEL) -> "Piece":
        """A piece that will be sealed later, away from the event loop."""
        return cls(batch, batch.first, batch.end, batch.raw_bytes, now, level=level)

    @classmethod
    def of_block(cls, block: SealedBlock, now: float) -> "Piece":
        """A piece that is sealed already (state metadata)."""
        return cls(None, block.first, block.end, len(block.data), now, block)

    @property
    def size(self) -> int:
        """Bytes in a segment; of an open piece those before compression."""
        return len(self.sealed.data) if self.sealed is not None else self.raw_bytes

    def seal(self) -> None:
        """Compress the batch and drop it; for a thread, because it takes long."""
        assert self.batch is not None
        self.sealed, self.batch = seal(self.batch, compression_level=self.level), None

    def stored(self, where: LogRange) -> None:
        """The block became part of this range of a segment: its bytes go."""
        self.durable, self.sealed = where, None


class ChainState(msgspec.Struct, frozen=True):
    """What a checkpoint stores of a chain: contiguous ranges, and after them inline blocks."""

    ranges: tuple[LogRange, ...]
    inline: tuple[bytes, ...]


class ChainCapture(msgspec.Struct, frozen=True):
    """The pieces a checkpoint needs, taken at the barrier.

    It outlives a truncation of the chain: a materialization that completes while the checkpoint
    is under way may be newer than the barrier and cannot stand in for these pieces.
    """

    ranges: tuple[LogRange, ...]
    pieces: tuple[Piece, ...]

    def open_pieces(self) -> list[Piece]:
        """Pieces that are not durable yet."""
        return [piece for piece in self.pieces if piece.durable is None]

    def durable_first(self) -> bool:
        """No open piece lies before a durable one, so the open ones may live in the manifest."""
        durable = [piece.durable is not None for piece in self.pieces]
        return durable == sorted(durable, reverse=True)

    def state(self) -> ChainState:
        """Ranges and inline blocks, once every open piece is sealed."""
        ranges = list(self.ranges)
        inline = []
        for piece in self.pieces:
            if piece.durable is None:
                assert piece.sealed is not None, "the uploader seals before it answers"
                inline.append(piece.sealed.data)
            # Pieces of one upload share a range: each carries the whole of it.
            elif not ranges or ranges[-1] != piece.durable:
                ranges.append(piece.durable)
        return ChainState(tuple(ranges), tuple(inline))

    def objects(self) -> set[str]:
        """Segments that hold durable pieces of the capture."""
        return _segments(self.ranges, self.pieces)


class SubtaskLogChain:
    """Ordered pieces of one subtask's log."""

    def __init__(self, operator: str, subtask: int, restored: Iterable[LogRange] = ()) -> None:
        self.operator = operator
        self.subtask = subtask
        self._ranges: deque[LogRange] = deque(restored)
        self._pending: deque[Piece] = deque()
        self._appended = 0

    @property
    def end(self) -> SeqNo | None:
        """Where the next piece starts; None for an empty chain."""
        if self._pending:
            return self._pending[-1].end
        return self._ranges[-1].end if self._ranges else None

    @property
    def log_bytes(self) -> int:
        """Durable bytes plus raw bytes still pending."""
        return sum(r.length for r in self._ranges) + sum(p.raw_bytes for p in self._pending)

    @property
    def changes(self) -> int:
        """Number of changes a restore of this chain replays."""
        durable = sum(r.end - r.first for r in self._ranges)
        return durable + sum(p.end - p.first for p in self._pending)

    def append(self, piece: Piece) -> None:
        """Add the piece of one flush; raises InvariantError when it does not fit."""
        end = self.end
        if end is not None and piece.first != end:
            raise InvariantError(
                f"log of {self.operator}-{self.subtask}",
                expected=f"the next change to be number {end}",
                found=f"{piece.first}",
                action="report this as a defect; the last checkpoint is intact",
                retry_safe=False,
            )
        piece.number = self._appended
        self._appended += 1
        self._pending.append(piece)

    def settle(self) -> None:
        """Turn the durable prefix of the pending pieces into ranges."""
        while self._pending and self._pending[0].durable is not None:
            durable = self._pending.popleft().durable
            assert durable is not None
            if not self._ranges or self._ranges[-1] != durable:
                self._ranges.append(durable)

    def capture(self) -> ChainCapture:
        """Everything logged so far."""
        return ChainCapture(tuple(self._ranges), tuple(self._pending))

    def truncate(self, below: SeqNo) -> None:
        """Forget what a materialization covers; pieces on their way stay with the uploader."""
        while self._ranges and _covered(self._ranges[0], below):
            self._ranges.popleft()
        while self._pending and _covered(self._pending[0], below):
            self._pending.popleft()

    def objects(self) -> set[str]:
        """Segments this chain refers to."""
        return _segments(self._ranges, self._pending)


def _segments(ranges: Iterable[LogRange], pieces: Iterable[Piece]) -> set[str]:
    durable = {piece.durable.segment for piece in pieces if piece.durable is not None}
    return durable.union(r.segment for r in ranges)


def _covered(part: LogRange | Piece, below: SeqNo) -> bool:
    """State metadata written exactly at `below` starts the new chain and stays."""
    return part.first < below and part.end <= below
