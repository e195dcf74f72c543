"""The reader: log ranges back as checked blocks, with few requests.

Invariants: what is returned is exactly the changes [first, end) of the range that was asked
for, every checksum verified.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from tidelog.changelog.block import Block, corrupt, iter_blocks
from tidelog.changelog.segment import LogRange
from tidelog.concurrency import together
from tidelog.errors import OLDER_CHECKPOINT, ObjectNotFoundError, RestoreError
from tidelog.storage.port import ObjectStore

MAX_GAP_BYTES: Final = 64 << 10
"""Reading this much too much costs less than another request."""
MAX_REQUEST_BYTES: Final = 8 << 20
"""Merging stops here, so that large reads stay parallel."""


@dataclass(slots=True)
class _Request:
    """One ranged read [start, end) of a segment and the log ranges it serves."""

    start: int
    end: int
    ranges: list[LogRange]


class SegmentReader:
    """Reads log ranges, at most `concurrency` requests at a time."""

    def __init__(self, store: ObjectStore, concurrency: int = 8) -> None:
        self._store = store
        self._permits = asyncio.Semaphore(concurrency)

    async def read_range(self, log_range: LogRange) -> list[Block]:
        """The blocks of one range; raises like `read_ranges`."""
        return (await self.read_ranges([log_range]))[0]

    async def read_ranges(self, ranges: Sequence[LogRange]) -> list[list[Block]]:
        """The blocks of each range, in the order of `ranges`, all of them in memory at once.

        Raises RestoreError (a segment is gone), CorruptObjectError (truncated, damaged, not the
        changes it should hold), FormatVersionError, and what the store raises.
        """
        blocks: dict[LogRange, list[Block]] = {}
        for fetched in await together(map(self._fetch, _plan(dict.fromkeys(ranges)))):
            blocks.update(fetched)
        return [blocks[log_range] for log_range in ranges]

    async def _fetch(self, request: _Request) -> dict[LogRange, list[Block]]:
        name = request.ranges[0].segment
        async with self._permits:
            try:
                data = await self._store.get(name, request.start, request.end - request.start)
            except ObjectNotFoundError as cause:
                raise RestoreError(
                    f"log segment {name}",
                    expected="the object that the checkpoint names",
                    found="no such object",
                    action=f"{OLDER_CHECKPOINT}, and find out what else deletes objects here",
                ) from cause
        fetched = {}
        for log_range in request.ranges:
            start = log_range.offset - request.start
            fetched[log_range] = _open(log_range, data[start : start + log_range.length])
        return fetched


def _plan(ranges: Iterable[LogRange]) -> list[_Request]:
    """Requests that cover the ranges: neighbours in a segment share one while it stays cheap."""
    requests: list[_Request] = []
    for log_range in sorted(ranges, key=lambda r: (r.segment, r.offset)):
        end = log_range.offset + log_range.length
        last = requests[-1] if requests else None
        if (
            last is not None
            and last.ranges[0].segment == log_range.segment
            and log_range.offset - last.end <= MAX_GAP_BYTES
            and end - last.start <= MAX_REQUEST_BYTES
        ):
            last.end = max(last.end, end)
            last.ranges.append(log_range)
        else:
            requests.append(_Request(log_range.offset, end, [log_range]))
    return requests


def _open(log_range: LogRange, data: bytes) -> list[Block]:
    name, offset = log_range.segment, log_range.offset
    if len(data) != log_range.length:
        actual = f"{len(data)} bytes (truncated)"
        raise corrupt(name, offset, f"{log_range.length} bytes of log", actual)
    blocks = list(iter_blocks(data, name, base=offset))
    expected = log_range.first
    for block in blocks:
        if block.first != expected:
            raise corrupt(
                name, block.offset, f"changes from {expected}", f"changes from {block.first}"
            )
        expected = block.end
    if expected != log_range.end:
        raise corrupt(name, offset, f"changes up to {log_range.end}", f"changes up to {expected}")
    return blocks
