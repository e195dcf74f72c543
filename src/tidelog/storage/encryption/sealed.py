"""Sealed objects: the bytes of an encrypted object, and how a part of them is read.

Invariants: the key of an object is derived from the store key, the object's header, the store's id
and the object's name, so bytes that were written under another name or into another store do not
open; the header holds a random salt, so a key is never used for two contents; every chunk is
authenticated with its position and with whether it is the last one, so nothing can be cut off,
doubled or moved. Format: docs/internals/format.md, "Sealed objects".
"""

import hmac
import struct
from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tidelog.errors import OLDER_CHECKPOINT, CorruptObjectError, FormatVersionError
from tidelog.storage.document import SEALED_MAGIC

_VERSION: Final = 1
_CHUNK_LOG2: Final = 16
CHUNK: Final = 1 << _CHUNK_LOG2
"""Bytes of content in each chunk but the last, which has fewer unless it is full."""
_TAG: Final = 16
_STORED_CHUNK: Final = CHUNK + _TAG

_FIELDS: Final = struct.Struct("<8sHHI8s24s")
"""Magic, version, binary logarithm of the chunk's size, zero, id of the store key, salt."""
_COMMITMENT: Final = 16
HEADER: Final = _FIELDS.size + _COMMITMENT
SALT: Final = 24
KEY_ID: Final = 8
KEY: Final = 32

_LABEL: Final = b"tidelog object 1"


@dataclass(frozen=True, slots=True)
class StoreKey:
    """A key of a store, which the keys of its objects are derived from."""

    id: bytes
    secret: bytes


@dataclass(frozen=True, slots=True)
class ObjectIdentity:
    """What an object is bound to: its store and its name there."""

    store: bytes
    """The id of the store."""
    name: str
    label: str
    """The object in messages."""


def key_id_of(header: bytes, identity: ObjectIdentity) -> bytes:
    """The id of the store key that an object was sealed with.

    Raises CorruptObjectError for what is no sealed object, FormatVersionError for a newer one.
    """
    if len(header) < HEADER or not header.startswith(SEALED_MAGIC):
        raise _damaged(identity, "an encrypted object", "one that is not encrypted, or cut short")
    _, version, chunk_log2, zero, key_id, _ = _FIELDS.unpack_from(header)
    if version > _VERSION:
        raise FormatVersionError(
            identity.label,
            expected=f"sealed objects of format <= {_VERSION}",
            found=f"format {version}",
            action="use the tidelog release that wrote it, or a newer one; nothing was changed",
        )
    if (version, chunk_log2, zero) != (_VERSION, _CHUNK_LOG2, 0):
        raise _damaged(identity, "a header of sealed objects", "other values in its fields")
    return bytes(key_id)


def seal(data: bytes, key: StoreKey, identity: ObjectIdentity, salt: bytes) -> bytes:
    """The stored bytes of an object; `salt` has 24 random bytes, new for every call."""
    fields = _FIELDS.pack(SEALED_MAGIC, _VERSION, _CHUNK_LOG2, 0, key.id, salt)
    cipher, commitment = _derived(key, fields, identity)
    content = memoryview(data)
    parts = [fields, commitment]
    last = max(0, len(data) - 1) // CHUNK
    for index in range(last + 1):
        chunk = content[index * CHUNK : (index + 1) * CHUNK]
        parts.append(cipher.encrypt(_nonce(index, index == last), chunk, None))
    return b"".join(parts)


def open_whole(sealed_bytes: bytes, key: StoreKey, identity: ObjectIdentity) -> bytes:
    """The content of a whole object; raises CorruptObjectError."""
    chunks = memoryview(sealed_bytes)[HEADER:]
    if not chunks:  # an empty object has one chunk too, with nothing but its tag
        raise _altered(identity)
    return _open_chunks(sealed_bytes[:HEADER], chunks, 0, key, identity, ends=True)


def stored_range(start: int, length: int | None) -> tuple[int, int | None]:
    """Where a range's stored bytes begin after the header, and how many; None: all to the end."""
    first = start // CHUNK
    begin = HEADER + first * _STORED_CHUNK
    if length is None:
        return begin, None
    after = -(-(start + length) // CHUNK)
    return begin, (after - first) * _STORED_CHUNK


def open_range(
    header: bytes,
    chunks: bytes,
    start: int,
    length: int | None,
    key: StoreKey,
    identity: ObjectIdentity,
) -> bytes:
    """A range of content, from the bytes at `stored_range`; raises CorruptObjectError.

    Like a store, it returns what there is when the range reaches past the end.
    """
    if not chunks:
        return b""
    _, stored_length = stored_range(start, length)
    ends = stored_length is None or len(chunks) < stored_length
    first = start // CHUNK
    content = _open_chunks(header, memoryview(chunks), first, key, identity, ends=ends)
    skipped = start - first * CHUNK
    return content[skipped:] if length is None else content[skipped : skipped + length]


def content_size(stored_bytes: int) -> int:
    """Bytes of content of an object with so many stored bytes."""
    body = stored_bytes - HEADER
    return max(0, body - _TAG * -(-body // _STORED_CHUNK))


def _open_chunks(
    header: bytes,
    chunks: memoryview,
    first: int,
    key: StoreKey,
    identity: ObjectIdentity,
    *,
    ends: bool,
) -> bytes:
    """The content of successive chunks, the last of which must be the object's when it `ends`."""
    fields, commitment = header[: _FIELDS.size], header[_FIELDS.size : HEADER]
    cipher, expected = _derived(key, fields, identity)
    if not hmac.compare_digest(commitment, expected):
        raise _altered(identity)
    parts = []
    count = -(-len(chunks) // _STORED_CHUNK)
    for number in range(count):
        chunk = chunks[number * _STORED_CHUNK : (number + 1) * _STORED_CHUNK]
        newest = number == count - 1
        try:
            try:
                parts.append(cipher.decrypt(_nonce(first + number, newest and ends), chunk, None))
            except InvalidTag:
                # A range can end with the object's last chunk without reaching past it.
                if not newest or ends:
                    raise
                parts.append(cipher.decrypt(_nonce(first + number, last=True), chunk, None))
        except InvalidTag as cause:
            raise _altered(identity) from cause
    return b"".join(parts)


def _derived(key: StoreKey, fields: bytes, identity: ObjectIdentity) -> tuple[AESGCM, bytes]:
    """The cipher of an object and its commitment to the key: HKDF-Expand of RFC 5869, SHA-512."""
    name = identity.name.encode()
    lengths = struct.pack("<HH", len(identity.store), len(name))
    info = _LABEL + fields + lengths + identity.store + name
    derived = hmac.digest(key.secret, info + b"\x01", "sha512")
    return AESGCM(derived[:KEY]), derived[KEY : KEY + _COMMITMENT]


def _nonce(index: int, last: bool) -> bytes:
    return index.to_bytes(8, "big") + int(last).to_bytes(4, "big")


def _altered(identity: ObjectIdentity) -> CorruptObjectError:
    return _damaged(
        identity,
        "what was written in this store under this name",
        "other bytes: damaged, cut short, or brought from another name or store",
    )


def _damaged(identity: ObjectIdentity, expected: str, found: str) -> CorruptObjectError:
    return CorruptObjectError(
        f"{identity.label} does not open",
        expected=expected,
        found=found,
        action=f"{OLDER_CHECKPOINT} or bring the object back from a backup of this store",
    )
