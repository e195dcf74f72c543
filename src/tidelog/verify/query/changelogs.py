"""The changelogs of one Spark state store, wherever they lie: in segments, or as files.

Invariant: a changelog is returned decoded, after every checksum was verified, or an error names it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from tidelog.effects import Offload
from tidelog.errors import CorruptObjectError, ObjectNotFoundError, RestoreError
from tidelog.spark.checkpoint.checkpoint import SEGMENTS, STATE
from tidelog.spark.format.changelog import Changelog, read_changelog
from tidelog.spark.format.damage import damaged
from tidelog.spark.format.index import IndexEntry, Piece
from tidelog.spark.format.segment import read_content
from tidelog.storage.port import ObjectStore
from tidelog.verify.query.files import CheckedFiles, missing

Version = tuple[int, str]
"""A version of a state store, and the checkpoint id of the attempt that counts."""


@dataclass(frozen=True, slots=True)
class Changelogs:
    """Reads changelogs by version and id; None stands for a file."""

    store: ObjectStore
    files: CheckedFiles
    offload: Offload
    directory: str
    known: Mapping[Version, IndexEntry | None]

    def where(self, version: Version) -> str:
        """The name of a changelog as Spark sees it."""
        return f"{STATE}{self.directory}/{version[0]}_{version[1]}.changelog"

    async def read(self, version: Version) -> Changelog:
        """A changelog, decoded.

        Raises RestoreError when it is nowhere, and as `read_changelog`.
        """
        name = self.where(version)
        if version not in self.known:
            raise missing(name)
        entry = self.known[version]
        if entry is None:
            data = await self.files.read(name)
        else:
            data = await self._pieces(entry)
        return await self.offload.run(read_changelog, data, name)

    async def _pieces(self, entry: IndexEntry) -> bytes:
        parts = [await self._piece(entry, number) for number in range(len(entry.pieces))]
        content = b"".join(parts)
        if len(content) != entry.bytes:
            where = f"object {STATE}{entry.name.path}"
            raise damaged(where, f"{entry.bytes} bytes, as the index says", f"{len(content)}")
        return content

    async def _piece(self, entry: IndexEntry, number: int) -> bytes:
        piece = entry.pieces[number]
        last = number == len(entry.pieces) - 1
        where = f"{SEGMENTS}{piece.segment} at byte {piece.offset}"
        try:
            block = await self.store.get(SEGMENTS + piece.segment, piece.offset, piece.length)
        except ObjectNotFoundError as cause:
            raise _gone(piece) from cause
        if len(block) < piece.length:
            found = f"{len(block)} bytes (truncated)"
            raise CorruptObjectError(
                where,
                expected=f"{piece.length} bytes of {entry.name.path}",
                found=found,
                action="bring the object back from a backup",
            )
        return read_content(block, entry.name, number, len(entry.pieces) if last else 0, where)


def _gone(piece: Piece) -> RestoreError:
    return RestoreError(
        f"object {SEGMENTS}{piece.segment}",
        expected="a segment with changelogs that retained batches need",
        found="no such object",
        action="bring it back from a backup, or start the query from an earlier batch",
    )
