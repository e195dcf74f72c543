"""The log that several subtasks replay: each range fetched and each block decoded once.

Invariants: what a reader gets is what `SegmentReader` gave to the first that asked; what is
held for slower readers stays within the limit, and they fetch again what did not. A fetch
that one reader gives up goes on for the others, until `close`.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tidelog.changelog.block import Block, open_block
from tidelog.changelog.change import ChangeBatch
from tidelog.changelog.reader import SegmentReader
from tidelog.changelog.segment import LogRange
from tidelog.concurrency import SharedTasks
from tidelog.effects import Offload
from tidelog.state.recovery.progress import RestoreProgress


@dataclass(slots=True, eq=False)
class LoggedBlock:
    """A block that so many readers take or skip."""

    block: Block
    readers: int
    log: "SharedLog"
    decoding: "asyncio.Task[_Decoded] | None" = None
    """Decodes the block, together with others, for all its readers."""

    def skip(self, readers: int = 1) -> None:
        """Take away readers that will not come."""
        self.readers -= readers
        if self.readers <= 0 and self.decoding is not None:
            self.decoding = None
            self.log.drop(self.block.raw_bytes)


_Decoded = dict[LoggedBlock, ChangeBatch]


@dataclass(slots=True, eq=False)
class _Entry:
    """A range of the log that was fetched, or is being fetched."""

    fetching: "asyncio.Task[None]"
    blocks: list[LoggedBlock] = field(default_factory=list)


@dataclass(slots=True)
class SharedLog:
    """Ranges of segments by way of one reader."""

    reader: SegmentReader
    offload: Offload
    progress: RestoreProgress
    limit_bytes: int
    tasks: SharedTasks = field(default_factory=SharedTasks)
    """The fetches, and the decodings that several readers wait for."""
    _readers: Counter[LogRange] = field(default_factory=Counter)
    """How many readers have yet to come for a range."""
    _in_segment: dict[str, list[LogRange]] = field(default_factory=lambda: defaultdict(list))
    _entries: dict[LogRange, _Entry] = field(default_factory=dict)
    _inline: dict[bytes, LoggedBlock] = field(default_factory=dict)
    """Blocks that lie in the manifest."""
    _inline_readers: Counter[bytes] = field(default_factory=Counter)
    _held_bytes: int = 0

    def expect_inline(self, blocks: Iterable[bytes]) -> None:
        """Somebody will replay these, which lie in the manifest."""
        self._inline_readers.update(blocks)

    def inline(self, blocks: Iterable[bytes], name: str) -> list[LoggedBlock]:
        """Blocks of a manifest, opened for all who replay them; raises as `open_block`."""
        opened_blocks = []
        for data in blocks:
            if data not in self._inline:
                readers = max(1, self._inline_readers[data])
                self._inline[data] = LoggedBlock(open_block(data, 0, name), readers, self)
            opened_blocks.append(self._inline[data])
        return opened_blocks

    def expect(self, ranges: Iterable[LogRange]) -> None:
        """Somebody will read these."""
        for log_range in ranges:
            if not self._readers[log_range]:
                self._in_segment[log_range.segment].append(log_range)
            self._readers[log_range] += 1

    async def read(
        self, ranges: Sequence[LogRange], ahead: Sequence[LogRange] = ()
    ) -> list[list[LoggedBlock]]:
        """The blocks of each range; those of `ahead`, which the caller reads next, are fetched in
        the meantime. Raises what `SegmentReader.read_ranges` raises.
        """
        self._fetch(ranges)
        self._fetch(ahead)
        entries = [self._entries[log_range] for log_range in ranges]
        for entry in entries:
            await self.tasks.wait(entry.fetching)
        blocks_of_ranges = []
        for log_range, entry in zip(ranges, entries, strict=True):
            self._count_read(log_range, entry)
            blocks_of_ranges.append(entry.blocks)
        return blocks_of_ranges

    async def take(self, blocks: Sequence[LoggedBlock]) -> list[ChangeBatch]:
        """The changes of blocks, in one step for all; each block is decoded once for all its
        readers while there is room to keep what it gave. Raises CorruptObjectError.
        """
        decodings: dict[LoggedBlock, asyncio.Task[_Decoded]] = {}
        shared, unshared = [], []
        for logged in blocks:
            if logged.decoding is not None:
                decodings[logged] = logged.decoding
            elif logged.readers > 1 and self.keep(logged.block.raw_bytes):
                shared.append(logged)
            else:
                unshared.append(logged)
        if shared:
            decoding = self.tasks.start(self._decode(shared))
            for logged in shared:
                logged.decoding = decodings[logged] = decoding
        changes = await self._decode(unshared)
        for logged, decoding in decodings.items():
            changes[logged] = (await self.tasks.wait(decoding))[logged]
        for logged in blocks:
            logged.skip()
        return [changes[logged] for logged in blocks]

    async def _decode(self, blocks: Sequence[LoggedBlock]) -> _Decoded:
        if not blocks:
            return {}
        changes = await self.offload.run(lambda: [logged.block.changes() for logged in blocks])
        return dict(zip(blocks, changes, strict=True))

    async def close(self) -> None:
        """Cancel the fetches and decodings that are under way."""
        await self.tasks.close()
        self._entries = {}
        self._inline = {}

    def keep(self, size: int) -> bool:
        """Whether there is room for so much more; if so it is counted."""
        if self._held_bytes + size > self.limit_bytes:
            return False
        self._held_bytes += size
        return True

    def drop(self, size: int) -> None:
        """Count `size` bytes as freed."""
        self._held_bytes -= size

    def _fetch(self, ranges: Sequence[LogRange]) -> None:
        """Start to read those of the ranges that are absent, and in the same segments those that
        others want.
        """
        absent = [log_range for log_range in ranges if log_range not in self._entries]
        if not absent:
            return
        entries: dict[LogRange, _Entry] = {}
        fetching = self.tasks.start(self._read(entries))
        for log_range in absent:
            self._held_bytes += log_range.length
            entries[log_range] = self._entries[log_range] = _Entry(fetching)
        for log_range in absent:
            for other in self._in_segment[log_range.segment]:
                if other not in self._entries and self._readers[other] and self.keep(other.length):
                    entries[other] = self._entries[other] = _Entry(fetching)

    async def _read(self, entries: Mapping[LogRange, _Entry]) -> None:
        with self.progress.timings.fetch_log:
            blocks_of_ranges = await self.reader.read_ranges(list(entries))
        for (log_range, entry), blocks in zip(entries.items(), blocks_of_ranges, strict=True):
            self.progress.bytes += log_range.length
            readers = max(1, self._readers[log_range])
            entry.blocks = [LoggedBlock(block, readers, self) for block in blocks]

    def _count_read(self, log_range: LogRange, entry: _Entry) -> None:
        """A reader got the range: it is dropped after its last reader, or when too much is held."""
        self._readers[log_range] -= 1
        if self._entries.get(log_range) is not entry:
            return
        readers = self._readers[log_range]
        if readers <= 0 or self._held_bytes > self.limit_bytes:
            del self._entries[log_range]
            self._held_bytes -= log_range.length
            if readers > 0:
                # They come too late for these blocks, and fetch the range again.
                for block in entry.blocks:
                    block.skip(readers)
