"""A store whose objects are encrypted by this process before they leave it.

Invariants: the store below sees names, sizes and sealed bytes, nothing else; what stands above
sees content, as in any store. Whether a store is encrypted never changes: one that has objects and
no keys is refused, so a store is never half of each. Objects of a probe hold nothing and are not
encrypted.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final, ParamSpec, TypeVar

from tidelog.effects import Effects
from tidelog.errors import ConfigError, CorruptObjectError
from tidelog.events import Event
from tidelog.storage.encryption.keys import KeySource
from tidelog.storage.encryption.ring import KeyRing, begin_ring, read_ring
from tidelog.storage.encryption.sealed import (
    HEADER,
    SALT,
    ObjectIdentity,
    StoreKey,
    content_size,
    key_id_of,
    open_range,
    open_whole,
    seal,
    stored_range,
)
from tidelog.storage.errors import check_content, object_at, object_not_found
from tidelog.storage.object_names import KEYS, PROBE
from tidelog.storage.port import ObjectInfo, ObjectPart, ObjectStore, get_each

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

_INLINE: Final = 1 << 16
"""Bytes that are encrypted at once; more go to another thread."""
_HEADERS: Final = 4096


class EncryptedStore:
    """Encrypts what goes to `inner` and decrypts what comes from it.

    The first call asks for the store's keys: a LIST and a GET, and a LIST more where there are
    none. The first write to an empty store makes them. All calls raise ConfigError for a store that
    is not encrypted or has another key, CorruptObjectError for bytes that are not what was written
    under their name, and what the key's source raises.
    """

    def __init__(self, inner: ObjectStore, source: KeySource, effects: Effects) -> None:
        self.url = inner.url
        self.request_metrics = inner.request_metrics
        """Requests for sealed bytes."""
        self.cipher = StoreCipher(self)
        """Encrypts copies of objects that are kept elsewhere, bound to being copies."""
        self._inner = inner
        self._source = source
        self._effects = effects
        self._ring: KeyRing | None = None
        self._asking = asyncio.Lock()
        self._headers: OrderedDict[str, bytes] = OrderedDict()
        """Headers of the objects that were used last, so that a range is one request."""

    async def put(self, name: str, data: bytes) -> None:
        await self._inner.put(name, await self._stored(name, data))

    async def create(self, name: str, data: bytes) -> None:
        check_content(name, data)
        await self._inner.create(name, await self._stored(name, data))

    async def get(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        if name.startswith(PROBE):
            return await self._inner.get(name, start, length)
        if await self._readable() is None:
            raise object_not_found(self.url, name)
        if start == 0 and length is None:
            sealed_bytes = await self._inner.get(name)
            self._remember(name, sealed_bytes[:HEADER])
            return await self.opened(name, sealed_bytes)
        if length == 0:
            await self._inner.head(name)
            return b""
        return await self._range(name, start, length)

    async def get_parts(
        self, parts: Sequence[ObjectPart], patience_s: float | None = None
    ) -> Sequence[bytes | None]:
        """Each by itself, for it is opened by the header of its object."""
        return await get_each(self, parts, patience_s)

    async def list(self, prefix: str, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        await self._readable()
        async for info in self._inner.list(prefix, start_after):
            if not info.name.startswith(KEYS):
                yield _with_content_size(info)

    async def head(self, name: str) -> ObjectInfo:
        if not name.startswith(PROBE):
            await self._readable()
        return _with_content_size(await self._inner.head(name))

    async def delete(self, name: str) -> None:
        await self._inner.delete(name)
        self._headers.pop(name, None)

    def apart(self, effects: Effects) -> "EncryptedStore":
        return EncryptedStore(self._inner.apart(effects), self._source, effects)

    async def close(self) -> None:
        await self._inner.close()

    async def sealed(self, name: str, data: bytes) -> bytes:
        """The bytes to store under a name."""
        ring = await self._writable()
        salt, identity = self._effects.rng.randbytes(SALT), self._identity(ring, name)
        return await self._computed(len(data), seal, data, ring.newest, identity, salt)

    async def opened(self, name: str, sealed_bytes: bytes) -> bytes:
        """The content of the bytes that are stored under a name; raises CorruptObjectError."""
        key, identity = await self._key(name, sealed_bytes)
        return await self._computed(len(sealed_bytes), open_whole, sealed_bytes, key, identity)

    async def _stored(self, name: str, data: bytes) -> bytes:
        if name.startswith(PROBE):
            return data
        sealed_bytes = await self.sealed(name, data)
        self._remember(name, sealed_bytes[:HEADER])
        return sealed_bytes

    async def _range(self, name: str, start: int, length: int | None) -> bytes:
        chunks = self._inner.get(name, *stored_range(start, length))
        cached_header = self._headers.get(name)
        if cached_header is None:
            header, sealed_chunks = await asyncio.gather(self._inner.get(name, 0, HEADER), chunks)
            self._remember(name, header)
        else:
            header, sealed_chunks = cached_header, await chunks
        try:
            key, identity = await self._key(name, header)
            return await self._computed(
                len(sealed_chunks), open_range, header, sealed_chunks, start, length, key, identity
            )
        except CorruptObjectError:
            self._headers.pop(name, None)
            if cached_header is None:
                raise
        # Another process may have overwritten it since its header was seen.
        return await self._range(name, start, length)

    async def _key(self, name: str, header: bytes) -> tuple[StoreKey, ObjectIdentity]:
        """The key that an object was sealed with; asks anew for one that a rotation has made."""
        ring = await self._writable()
        identity = self._identity(ring, name)
        key_id = key_id_of(header, identity)
        if key_id not in ring.keys:
            async with self._asking:
                self._ring = await read_ring(self._inner, self._source) or ring
            ring = self._ring
        if key_id in ring.keys:
            return ring.keys[key_id], identity
        raise CorruptObjectError(
            f"{identity.label} does not open",
            expected=f"a key of this store, which has {', '.join(k.hex() for k in ring.keys)}",
            found=f"one that was sealed with {key_id.hex()}",
            action=f"bring the documents below {KEYS} back from a backup; if the object is from "
            "another store, bring back the right one",
        )

    def _identity(self, ring: KeyRing, name: str) -> ObjectIdentity:
        return ObjectIdentity(ring.store, name, object_at(self.url, name))

    async def _readable(self) -> KeyRing | None:
        """The keys; None for a store that is empty."""
        if self._ring is None:
            async with self._asking:
                if self._ring is None:
                    self._ring = await read_ring(self._inner, self._source)
                    if self._ring is None:
                        await self._check_empty()
        return self._ring

    async def _writable(self) -> KeyRing:
        """The keys, which are made for an empty store."""
        ring = await self._readable()
        if ring is None:
            async with self._asking:
                ring = self._ring
                if ring is None:
                    ring = await begin_ring(self._inner, self._source, self._effects)
                    Event.STORE_ENCRYPTED.log(logger, store=self.url, source=self._source.label)
                    self._ring = ring
        return ring

    async def _check_empty(self) -> None:
        async for info in self._inner.list(""):
            if not info.name.startswith((PROBE, KEYS)):
                raise ConfigError(
                    f"store {self.url}",
                    expected="an encrypted store or an empty one, for an encryption key was given",
                    found=f"objects that are not encrypted, such as {info.name}",
                    action="leave the key out, or begin an encrypted store with its state: "
                    "`tidelog clone URL@latest NEWURL --encryption-key FILE --origin-key none`",
                )

    async def _computed(
        self, size: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        if size <= _INLINE:
            return function(*args, **kwargs)
        return await self._effects.offload.run(function, *args, **kwargs)

    def _remember(self, name: str, header: bytes) -> None:
        self._headers[name] = header
        self._headers.move_to_end(name)
        if len(self._headers) > _HEADERS:
            self._headers.popitem(last=False)


class StoreCipher:
    """Seals copies of a store's objects with the store's keys."""

    def __init__(self, store: EncryptedStore) -> None:
        self._store = store

    async def seal(self, name: str, data: bytes) -> bytes:
        return await self._store.sealed(_copy_of(name), data)

    async def open(self, name: str, sealed: bytes) -> bytes:
        return await self._store.opened(_copy_of(name), sealed)


def _copy_of(name: str) -> str:
    # No object has such a name, so no copy can be put into the store's place.
    return f"local copy of {name}"


def _with_content_size(info: ObjectInfo) -> ObjectInfo:
    return info if info.name.startswith(PROBE) else ObjectInfo(info.name, content_size(info.size))
