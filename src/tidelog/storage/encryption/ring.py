"""The keys of a store: documents that hold them, wrapped by the user's key.

Invariants: documents are created once and numbered, the greatest number counts; it holds every key
that objects of the store were sealed with, and the last one seals new objects. A rotation writes
the next document, under the new key alone, before it deletes the old ones: a crash between leaves
the store readable with the new key. Objects are never rewritten.
Format: docs/internals/format.md, "Keys of a store".
"""

import base64
import logging
from dataclasses import dataclass

import msgspec

from tidelog.effects import Effects
from tidelog.errors import (
    ConfigError,
    CorruptObjectError,
    ObjectExistsError,
    ObjectNotFoundError,
    RestoreError,
)
from tidelog.events import Event
from tidelog.storage.document import FORMAT_VERSION, open_document, seal_document
from tidelog.storage.encryption.keys import KeySource, Wrapped
from tidelog.storage.encryption.sealed import KEY, KEY_ID, StoreKey
from tidelog.storage.errors import object_at
from tidelog.storage.object_names import KEYS, key_document, key_document_number
from tidelog.storage.port import ObjectStore, create_once

logger = logging.getLogger(__name__)

_STORE_ID = 16
_TRIES = 5
"""Rotations that may come between the listing and the read of a document."""


class StoredKey(msgspec.Struct, frozen=True):
    """A key of a store, wrapped."""

    id: str
    """16 hexadecimal digits."""
    wrapped_by: str
    wrapped: str
    """Base64."""


class StoredKeys(msgspec.Struct, frozen=True):
    """The document: the keys of a store, the one for new objects last."""

    store: str
    """The store's id, 32 hexadecimal digits drawn when it was made."""
    keys: tuple[StoredKey, ...]
    format: int = FORMAT_VERSION


@dataclass(frozen=True, slots=True)
class KeyRing:
    """The keys of an open store."""

    store: bytes
    number: int
    """The number in the name of the document that the keys were read from."""
    keys: dict[bytes, StoreKey]
    """By id, in the order they were made."""

    @property
    def newest(self) -> StoreKey:
        """Seals new objects."""
        return next(reversed(self.keys.values()))


async def read_ring(store: ObjectStore, source: KeySource) -> KeyRing | None:
    """The keys of a store, opened with the user's key; None when it has no document.

    Raises ConfigError when the user's key is another one, CorruptObjectError,
    FormatVersionError, and what the source raises.
    """
    for _ in range(_TRIES):
        numbers = await _numbers(store)
        if not numbers:
            return None
        try:
            return await _opened(store, numbers[-1], source)
        except ObjectNotFoundError:
            continue  # a rotation has deleted it since
    raise RestoreError(
        f"keys of store {store.url}",
        expected=f"a document below {KEYS} that stays",
        found="each one deleted before it was read",
        action="start again when nobody rotates the keys any more",
    )


async def begin_ring(store: ObjectStore, source: KeySource, effects: Effects) -> KeyRing:
    """Make the first key of an empty store, or read that of somebody who was faster."""
    ring = KeyRing(effects.rng.randbytes(_STORE_ID), 1, _with_new_key({}, effects))
    try:
        await _write(store, ring, source)
    except ObjectExistsError:
        existing = await read_ring(store, source)
        if existing is None:
            raise
        return existing
    return ring


async def rotate(store: ObjectStore, old: KeySource, new: KeySource, effects: Effects) -> KeyRing:
    """Wrap the keys of a store with `new`, add one for new objects, and forget the old wraps.

    `store` is the one below the encryption. Raises ConfigError for a store that is not encrypted or
    an `old` that does not open it, ObjectExistsError when another rotation was faster.
    """
    ring = await read_ring(store, old)
    if ring is None:
        raise ConfigError(
            f"store {store.url}",
            expected="an encrypted store",
            found="one without keys",
            action="to encrypt its state, clone it: `tidelog clone URL@latest NEWURL "
            "--encryption-key FILE --origin-key none`",
        )
    rotated = KeyRing(ring.store, ring.number + 1, _with_new_key(ring.keys, effects))
    await _write(store, rotated, new)
    for number in await _numbers(store):
        if number < rotated.number:
            await store.delete(key_document(number))
    Event.KEYS_ROTATED.log(logger, store=store.url, keys=len(rotated.keys))
    return rotated


def _with_new_key(keys: dict[bytes, StoreKey], effects: Effects) -> dict[bytes, StoreKey]:
    key = StoreKey(effects.rng.randbytes(KEY_ID), effects.rng.randbytes(KEY))
    return {**keys, key.id: key}


async def _numbers(store: ObjectStore) -> list[int]:
    """The numbers of a store's documents, ascending."""
    numbers = [key_document_number(info.name) async for info in store.list(KEYS)]
    return sorted(number for number in numbers if number is not None)


async def _write(store: ObjectStore, ring: KeyRing, source: KeySource) -> None:
    wrapped = []
    for position, key in enumerate(ring.keys.values()):
        context = _context(ring.store.hex(), len(ring.keys), ring.number, position, key.id)
        wrap = await source.wrap(key.secret, context)
        data = base64.b64encode(wrap.data).decode()
        wrapped.append(StoredKey(key.id.hex(), wrap.by, data))
    document = seal_document(StoredKeys(ring.store.hex(), tuple(wrapped)))
    await create_once(store, key_document(ring.number), document)


async def _opened(store: ObjectStore, number: int, source: KeySource) -> KeyRing:
    name = key_document(number)
    what = object_at(store.url, name)
    document = open_document(await store.get(name), f"{store.url}/{name}", StoredKeys)
    try:
        identity = bytes.fromhex(document.store)
        wrapped = [
            (bytes.fromhex(key.id), Wrapped(key.wrapped_by, base64.b64decode(key.wrapped)))
            for key in document.keys
        ]
    except ValueError as cause:
        raise _damaged(what, str(cause)) from cause
    if not wrapped:
        raise _damaged(what, "no key")
    ring = KeyRing(identity, number, {})
    names = ", ".join(sorted({wrapped_key.by for _, wrapped_key in wrapped}))
    for position, (key_id, wrapping) in enumerate(wrapped):
        context = _context(document.store, len(wrapped), number, position, key_id)
        secret = await source.unwrap(wrapping, context)
        if secret is None:
            raise ConfigError(
                source.label,
                expected=f"the key of store {store.url}, {names}",
                found="another key",
                action="give the key that the store was begun with or last rotated to; nothing "
                "was changed",
            )
        if (len(key_id), len(secret)) != (KEY_ID, KEY):
            raise _damaged(what, "a key or an id of another length")
        ring.keys[key_id] = StoreKey(key_id, secret)
    return ring


def _context(store: str, count: int, number: int, position: int, key_id: bytes) -> str:
    """What a wrapped key is bound to: no key can be left out, moved or brought from elsewhere."""
    return f"tidelog store key 1|{store}|{number}|{position}/{count}|{key_id.hex()}"


def _damaged(what: str, found: str) -> CorruptObjectError:
    return CorruptObjectError(
        f"{what} is damaged",
        expected="the wrapped keys of a store",
        found=found,
        action="bring it back from a backup: without it no object of the store can be read",
    )
