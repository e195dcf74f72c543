"""The bytes of virtual changelogs, read from segments with few requests.

Invariants: what is returned passed every checksum and carries the name that was asked for; the
cache holds at most `cache_bytes` of segments besides those that are being read.
"""

import asyncio
from collections import OrderedDict

from tidelog.errors import CorruptObjectError, ObjectNotFoundError, RestoreError
from tidelog.spark.checkpoint.checkpoint import SEGMENTS
from tidelog.spark.format.block import read_content
from tidelog.spark.format.index import IndexEntry, Piece
from tidelog.storage.port import ObjectStore

CACHE_BYTES = 128 << 20


class ChangelogReader:
    """Reads changelogs by their index entries; a segment is fetched whole and kept for others."""

    def __init__(self, store: ObjectStore, cache_bytes: int = CACHE_BYTES) -> None:
        self._store = store
        self._limit = cache_bytes
        self._segments: OrderedDict[str, asyncio.Task[bytes]] = OrderedDict()

    async def read(self, entry: IndexEntry) -> bytes:
        """The content of a changelog.

        Raises RestoreError (a segment is gone), CorruptObjectError (truncated, damaged, or of
        another changelog), FormatVersionError, and what the store raises.
        """
        parts = []
        for number, piece in enumerate(entry.pieces):
            data = await self._segment(piece.segment, entry)
            block = data[piece.offset : piece.offset + piece.length]
            pieces = len(entry.pieces) if number == len(entry.pieces) - 1 else 0
            where = _where(piece)
            parts.append(read_content(block, entry.name, number, pieces, where))
        content = b"".join(parts)
        if len(content) != entry.bytes:
            raise CorruptObjectError(
                f"changelog {entry.name.path} in {', '.join(map(_where, entry.pieces))}",
                expected=f"{entry.bytes} bytes, as its index entry says",
                found=f"{len(content)}",
                action="run `tidelog spark rebuild-index`",
                retry_safe=False,
            )
        return content

    async def close(self) -> None:
        """End what is being read."""
        for task in self._segments.values():
            task.cancel()
        await asyncio.gather(*self._segments.values(), return_exceptions=True)
        self._segments.clear()

    async def _segment(self, segment: str, entry: IndexEntry) -> bytes:
        task = self._segments.get(segment)
        if task is None:
            task = asyncio.ensure_future(self._store.get(SEGMENTS + segment))
            self._segments[segment] = task
        self._segments.move_to_end(segment)
        try:
            data = await asyncio.shield(task)
        except ObjectNotFoundError as cause:
            raise RestoreError(
                f"segment {SEGMENTS}{segment}",
                expected=f"an object with changelog {entry.name.path}",
                found="nothing",
                action="bring it back from a backup, or start the query from an earlier batch",
                retry_safe=False,
            ) from cause
        self._evict()
        return data

    def _evict(self) -> None:
        held = {
            name: len(task.result())
            for name, task in self._segments.items()
            if task.done() and not task.cancelled() and task.exception() is None
        }
        excess = sum(held.values()) - self._limit
        for name, size in held.items():
            if excess <= 0:
                return
            del self._segments[name]
            excess -= size


def _where(piece: Piece) -> str:
    return f"{SEGMENTS}{piece.segment} at byte {piece.offset}"
