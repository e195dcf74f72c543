"""Checked JSON documents: manifests and materialization descriptors.

Invariant: a document is `{"crc32c": "<8 hex>", "body": {...}}`, its checksum covers the body's
bytes as stored, and no field of a body is looked at before checksum and format version passed.
Keys are sorted, so equal contents are equal bytes. Format: docs/internals/format.md, "Documents".
"""

import hashlib
from typing import Annotated, Final, TypeAlias, TypeVar

import google_crc32c
import msgspec

from tidelog.errors import OLDER_CHECKPOINT, ConfigError, CorruptObjectError, FormatVersionError

FORMAT_VERSION = 1
"""The newest document format this release writes and reads."""

SEALED_MAGIC: Final = b"TDLGCRPT"
"""The first bytes of every encrypted object."""

FileName: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^(?!\.{1,2}$)[^/\x00]+$")]
"""Name of a file within its directory. A stored name that leads elsewhere is refused when it is
decoded: a file would be written wherever the writer of the object wanted it."""

T = TypeVar("T")

_encoder = msgspec.json.Encoder(order="sorted")


class _Envelope(msgspec.Struct):
    crc32c: str
    body: msgspec.Raw


class _Versioned(msgspec.Struct):
    format: int


def checksum(data: bytes) -> str:
    """CRC32C of `data` as eight hexadecimal digits."""
    return f"{google_crc32c.value(data):08x}"


def content_hash(data: bytes) -> str:
    """The hash in the name of the table file's object that holds these bytes."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def seal_document(body: msgspec.Struct) -> bytes:
    """The stored bytes of a body; the body has a `format` field."""
    raw = _encoder.encode(body)
    return b'{"body":' + raw + b',"crc32c":"' + checksum(raw).encode() + b'"}\n'


def open_document(data: bytes, name: str, kind: type[T], otherwise: str = "") -> T:
    """Check and decode the document stored as `name`; `otherwise` is what else may be done about
    one that a newer release has written.

    Raises CorruptObjectError (not a document, wrong checksum, wrong shape), FormatVersionError
    (written by a newer release) and ConfigError (encrypted: the store was opened without its key).
    """
    if data.startswith(SEALED_MAGIC):
        raise without_key(f"object {name}")
    try:
        envelope = msgspec.json.decode(data, type=_Envelope)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as cause:
        raise _corrupt(name, "a checked JSON document", str(cause)) from cause
    body = bytes(envelope.body)
    if checksum(body) != envelope.crc32c:
        raise _corrupt(name, f"CRC32C {envelope.crc32c}", checksum(body))
    try:
        version = msgspec.json.decode(body, type=_Versioned).format
        if version <= FORMAT_VERSION:
            return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as cause:
        raise _corrupt(name, f"a {kind} document", str(cause)) from cause
    raise FormatVersionError(
        f"object {name}",
        expected=f"document format <= {FORMAT_VERSION}",
        found=f"format {version}",
        action=f"use the tidelog release that wrote it, or a newer one{otherwise}; nothing in it "
        "was changed",
    )


def without_key(what: str) -> ConfigError:
    """The error for something encrypted where no key was given."""
    return ConfigError(
        what,
        expected="something that is not encrypted, for no encryption key was given",
        found="what is encrypted",
        action="give the store's key: --encryption-key, TIDELOG__ENCRYPTION_KEY or "
        "open_store(encryption_key=...); nothing was changed",
    )


def _corrupt(name: str, expected: str, found: str) -> CorruptObjectError:
    return CorruptObjectError(
        f"object {name} is damaged",
        expected=expected,
        found=found,
        action=f"{OLDER_CHECKPOINT} or bring the object back from a backup",
    )
