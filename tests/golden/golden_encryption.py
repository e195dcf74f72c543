"""What the golden files of encryption hold, and how they are written; the key is no secret."""

import asyncio
from collections.abc import Callable
from random import Random

from tidelog.effects import Effects, InlineOffload
from tidelog.storage.encryption.keys import LocalKeys
from tidelog.storage.encryption.ring import KeyRing, begin_ring, read_ring, rotate
from tidelog.storage.encryption.sealed import SALT, ObjectIdentity, StoreKey, seal
from tidelog.storage.memory import MemoryStore

KEY = StoreKey(bytes(range(8)), bytes(range(32)))
PLACE = ObjectIdentity(bytes(range(16)), "segments/00000001-a-0000000000.seg", "the golden object")
SALT_BYTES = bytes(range(100, 100 + SALT))
CONTENT = bytes(range(256)) + b"content"
LONG = bytes(256) * 512

USER_KEY = bytes(range(32, 64))
DOCUMENT = "keys/00000002.json"


def _effects() -> Effects:
    return Effects(rng=Random(20261123), offload=InlineOffload())


def user_keys() -> LocalKeys:
    return LocalKeys((USER_KEY,), "the golden key", _effects())


def document() -> bytes:
    """The keys of a store that were rotated once."""

    async def written() -> bytes:
        store, effects = MemoryStore(), _effects()
        await begin_ring(store, user_keys(), effects)
        await rotate(store, user_keys(), user_keys(), effects)
        return await store.get(DOCUMENT)

    return asyncio.run(written())


def ring_of(document: bytes) -> KeyRing | None:
    """The keys that a document holds."""

    async def read() -> KeyRing | None:
        store = MemoryStore()
        await store.put(DOCUMENT, document)
        return await read_ring(store, user_keys())

    return asyncio.run(read())


FILES: dict[str, Callable[[], bytes]] = {
    "sealed_object_v1.bin": lambda: seal(CONTENT, KEY, PLACE, SALT_BYTES),
    "sealed_empty_v1.bin": lambda: seal(b"", KEY, PLACE, SALT_BYTES),
    "store_keys_v1.json": document,
}
