"""Descriptors: what an uploaded table snapshot is made of.

Invariant: a descriptor names every file of its snapshot, with what its content must be.
Format: docs/internals/format.md, "Manifests, slots and materializations".
"""

import msgspec

from tidelog.errors import OLDER_CHECKPOINT, CorruptObjectError
from tidelog.ids import Generation, MaterializationId, SeqNo
from tidelog.storage import object_names
from tidelog.storage.document import (
    FORMAT_VERSION,
    FileName,
    checksum,
    content_hash,
    open_document,
    seal_document,
)


class TableObject(msgspec.Struct, frozen=True):
    """A shared table file and the object that holds it."""

    name: FileName
    object: str
    size: int
    crc32c: str

    def check(self, data: bytes, action: str) -> None:
        """Raise CorruptObjectError, with this `action`, for other bytes than those of the file.

        The CRC alone cannot tell: a file that ends with its own CRC32C, as row files do, has the
        same CRC32C as every other such file, so two of one length could be taken for each other.
        """
        crc, expected_hash = checksum(data), object_names.content_hash_of(self.object)
        if len(data) != self.size or crc != self.crc32c:
            expected = f"{self.size} bytes with CRC32C {self.crc32c}"
            actual = f"{len(data)} bytes with {crc}"
        elif expected_hash is not None and (digest := content_hash(data)) != expected_hash:
            expected, actual = "the content whose hash is in its name", f"content of hash {digest}"
        else:
            return
        raise CorruptObjectError(
            f"object {self.object} is damaged", expected=expected, found=actual, action=action
        )


class Descriptor(msgspec.Struct, frozen=True):
    """A materialization: shared files by reference, small ones within."""

    id: MaterializationId
    operator: str
    subtask: int
    generation: Generation
    table: str
    upto: SeqNo
    shared: tuple[TableObject, ...]
    private: dict[FileName, bytes]
    format: int = FORMAT_VERSION

    @property
    def shared_bytes(self) -> dict[str, int]:
        """Bytes of every shared file, by object."""
        return {file.object: file.size for file in self.shared}

    @property
    def table_bytes(self) -> int:
        """Bytes of all files."""
        return sum(f.size for f in self.shared) + sum(map(len, self.private.values()))


def encode_descriptor(descriptor: Descriptor) -> bytes:
    """The bytes stored for a materialization."""
    return seal_document(descriptor)


def decode_descriptor(data: bytes, name: str) -> Descriptor:
    """Check and decode a descriptor; raises CorruptObjectError, FormatVersionError."""
    return open_document(data, name, Descriptor, f", or {OLDER_CHECKPOINT}")
