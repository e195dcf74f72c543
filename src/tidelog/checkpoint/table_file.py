"""The stored files of a materialized table: named by their content, and checked against it.

Invariant: no file is used whose length, CRC32C or content hash is not the one stored. The CRC alone
cannot tell: a file that ends with its own CRC32C, as row files do, has the same CRC32C as every
other such file, so two of one length could be taken for each other.
Format: docs/internals/format.md, "Materializations".
"""

import hashlib
import re
from typing import Final

from tidelog.checkpoint.manifest import TableObject
from tidelog.errors import CorruptObjectError
from tidelog.storage.document import checksum

_HASH_BYTES: Final = 16
_NAME: Final = re.compile(r"tables/\w+/([0-9a-f]{32})-[\w.-]+\.sst", re.ASCII)


def content_hash(data: bytes) -> str:
    """The hash in the name of the object that holds these bytes."""
    return hashlib.blake2b(data, digest_size=_HASH_BYTES).hexdigest()


def named_hash(name: str) -> str | None:
    """The hash in the name of a table file's object; None for any other name."""
    named = _NAME.fullmatch(name)
    return named[1] if named is not None else None


def check_table_file(file: TableObject, data: bytes, action: str) -> None:
    """Raises CorruptObjectError, with this `action`, if the bytes are not those of the file."""
    if len(data) != file.size or checksum(data) != file.crc32c:
        raise CorruptObjectError(
            f"object {file.object} is damaged",
            expected=f"{file.size} bytes with CRC32C {file.crc32c}",
            found=f"{len(data)} bytes with {checksum(data)}",
            action=action,
        )
    named = named_hash(file.object)
    if named is not None and content_hash(data) != named:
        raise CorruptObjectError(
            f"object {file.object} is damaged",
            expected="the content whose hash is in its name",
            found=f"content of hash {content_hash(data)}",
            action=action,
        )
