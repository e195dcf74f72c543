"""Files and changelogs of a Spark checkpoint, every checksum verified.

Invariants: a file is returned whole and right as far as anything says what it should be: the hidden
checksum file that Hadoop keeps on local disks, and the one that Spark keeps for state files. A
changelog is returned decoded, wherever it lies, or an error names it.
"""

import struct
import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

import google_crc32c
import msgspec

from tidelog.checkpoint.finding import UNREADABLE
from tidelog.effects import Offload
from tidelog.errors import ObjectNotFoundError, RestoreError, TidelogError
from tidelog.spark.checkpoint.checkpoint import STATE, segment_object, sidecar
from tidelog.spark.checkpoint.loading import Version, lineage_of
from tidelog.spark.checkpoint.locate import content_of
from tidelog.spark.format.changelog import Changelog, UnreadableCodecError, read_changelog
from tidelog.spark.format.damage import damaged
from tidelog.spark.format.index import ChangelogPiece, IndexEntry
from tidelog.spark.format.names import IN_COMMIT
from tidelog.spark.format.segment import read_segment
from tidelog.storage.port import ObjectStore

_HADOOP_MAGIC: Final = b"crc\x00"
_HADOOP_HEAD: Final = struct.Struct(">4sI")


class _Checksum(msgspec.Struct, rename="camel"):
    """What Spark writes next to a state file."""

    algorithm: str
    value: int
    main_file_size: int


@dataclass(frozen=True, slots=True)
class CheckedFiles:
    """Reads files; `listed` has the names of all checksum files, at least."""

    store: ObjectStore
    listed: Collection[str]
    coverage: dict[str, bool] = field(default_factory=dict)
    """The objects that were read, and whether a checksum covers all of their bytes."""

    async def read(self, name: str) -> bytes:
        """A file's bytes; raises RestoreError if it is missing, CorruptObjectError for damage."""
        data = await self._get(name)
        if sidecar(name) in self.listed:
            check_hadoop(data, await self._get(sidecar(name)), name)
            self.coverage.update({name: True, sidecar(name): True})
        checksum_file = f"{name}.crc"
        if checksum_file in self.listed:
            check_spark(data, await self.read(checksum_file), name)
            self.coverage.update({name: True, checksum_file: True})
        return data

    async def _get(self, name: str) -> bytes:
        self.coverage.setdefault(name, False)
        try:
            return await self.store.get(name)
        except ObjectNotFoundError as cause:
            raise missing(name) from cause


@dataclass(frozen=True, slots=True)
class Changelogs:
    """Reads the changelogs of one state store by version and id; None stands for a file."""

    files: CheckedFiles
    offload: Offload
    directory: str
    entries: Mapping[Version, IndexEntry | None]
    in_commits: dict[str, bytes] = field(default_factory=dict)
    """Segments within commits that were read."""
    lineages: dict[Version, tuple[Version, ...]] = field(default_factory=dict)
    """What the changelogs that were read name."""
    errors: dict[Version, TidelogError] = field(default_factory=dict)
    """Why changelogs cannot be read."""

    def where(self, version: Version) -> str:
        """The name of a changelog as Spark sees it."""
        return f"{STATE}{self.directory}/{version[0]}_{version[1]}.changelog"

    async def read(self, version: Version) -> Changelog:
        """A changelog, decoded; raises RestoreError when it is nowhere, and as `read_changelog`."""
        try:
            changelog = await self._read(version, self.where(version))
        except (*UNREADABLE, UnreadableCodecError) as error:
            self.errors[version] = error
            raise
        self.lineages[version] = lineage_of(changelog)
        return changelog

    async def lineage(self, version: Version) -> tuple[Version, ...]:
        """The versions that a changelog names; raises as `read`."""
        if version in self.errors:
            raise self.errors[version]
        if version not in self.lineages:
            await self.read(version)
        return self.lineages[version]

    async def _read(self, version: Version, name: str) -> Changelog:
        if version not in self.entries:
            raise missing(name)
        entry = self.entries[version]
        data = await (self.files.read(name) if entry is None else content_of(entry, self._block))
        return await self.offload.run(read_changelog, data, name)

    async def _block(self, piece: ChangelogPiece) -> bytes:
        name, (_, start, length) = segment_object(piece.segment), piece
        try:
            if not name.startswith(IN_COMMIT):
                return await self.files.store.get(name, start, length)
            # It can only be read as a whole, and several versions may be looked for again.
            if name not in self.in_commits:
                self.in_commits[name] = await read_segment(self.files.store, name)
            return self.in_commits[name][start : start + length]
        except ObjectNotFoundError as cause:
            raise missing(name) from cause


def missing(name: str) -> RestoreError:
    return RestoreError(
        f"object {name}",
        expected="a file that a retained batch needs",
        found="no such object",
        action="bring it back from a backup, or start the query from an earlier batch",
    )


def check_hadoop(data: bytes, checksums: bytes, name: str) -> None:
    """Compare with the checksum file of Hadoop's: a CRC32 for every so many bytes."""
    if len(checksums) < _HADOOP_HEAD.size:
        raise damaged(sidecar(name), "a checksum file of Hadoop", f"{len(checksums)} bytes")
    magic, size = _HADOOP_HEAD.unpack_from(checksums)
    expected = checksums[_HADOOP_HEAD.size :]
    if magic != _HADOOP_MAGIC or size == 0:
        raise damaged(sidecar(name), "a checksum file of Hadoop", f"{checksums[:8].hex()}")
    sums = [zlib.crc32(data[start : start + size]) for start in range(0, len(data), size)]
    actual = struct.pack(f">{len(sums)}I", *sums)
    if actual != expected:
        equal = 0
        while actual[equal : equal + 4] == expected[equal : equal + 4]:
            equal += 4
        where = f"object {name} at byte {equal // 4 * size}"
        raise damaged(where, f"the bytes whose checksums are in {sidecar(name)}", "others")


def check_spark(data: bytes, checksum: bytes, name: str) -> None:
    """Compare with the checksum file of Spark's: the CRC32C of all bytes, and their number."""
    try:
        expected = msgspec.json.decode(checksum, type=_Checksum)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as cause:
        raise damaged(f"object {name}.crc", "a checksum file of Spark", str(cause)) from cause
    if expected.algorithm != "CRC32C":
        return  # One that a newer Spark knows.
    value = expected.value % (1 << 32)
    actual = int(google_crc32c.value(data))
    if (len(data), actual) != (expected.main_file_size, value):
        raise damaged(
            f"object {name}",
            f"{expected.main_file_size} bytes with CRC32C {value:08x}, as {name}.crc says",
            f"{len(data)} bytes with {actual:08x}",
        )
