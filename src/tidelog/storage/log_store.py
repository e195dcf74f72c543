"""A store whose log may be in another one: fast and near for the log, cheap for the tables.

Invariants: the document `log-store.json` of a store says where its log is; it is created once,
before the first segment, and never changed, so every reader finds the log by itself. The
log's store has its counterpart, `log-of.json` with the same id: no two stores share a log store,
and one that was emptied or replaced is noticed before a segment is read or written, and before a
slot is, which would fence. Segments are the only objects that are there.
Format: docs/internals/format.md, "The log in a store of its own".
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

import msgspec

from tidelog.effects import Effects
from tidelog.errors import ConfigError, ObjectExistsError, ObjectNotFoundError, RestoreError
from tidelog.ids import Slot
from tidelog.storage.document import FORMAT_VERSION, open_document, seal_document, without_key
from tidelog.storage.object_names import CHECKPOINTS, KEYS, LOG_OF, LOG_STORE, SEGMENTS, checkpoint
from tidelog.storage.port import ObjectInfo, ObjectPart, ObjectStore, create_once, get_each

_FIRST_SLOT: Final = checkpoint(Slot(0))


class Partner(msgspec.Struct, frozen=True):
    """What each of the two stores says of the other one."""

    id: str
    """The same in both; no other pair has it."""
    url: str
    """URL of the other store."""
    format: int = FORMAT_VERSION


async def log_place(store: ObjectStore) -> str | None:
    """The URL of the store that the log of this one is in; None when it is in the store itself."""
    partner = await _partner(store, LOG_STORE)
    return None if partner is None else partner.url


async def check_no_log(store: ObjectStore) -> None:
    """Raises ConfigError for a place where another store has its log: none can begin there."""
    if (owner := await _partner(store, LOG_OF)) is not None:
        raise ConfigError(
            f"store {store.url}",
            expected="a place that is not the log of another store",
            found=f"the log of {owner.url}",
            action="choose another URL, or a prefix below this one",
        )


class StoreWithLog:
    """A store and the one its log is in, which can be the same.

    `chosen` is where the log of a new store goes. The first call that concerns a segment or writes
    a slot makes one more GET; it raises ConfigError when the store has its log elsewhere already,
    RestoreError when that place does not know the store.
    """

    def __init__(
        self,
        main: ObjectStore,
        open_log: Callable[[str], ObjectStore],
        new_id: Callable[[], str],
        chosen: ObjectStore | None = None,
    ) -> None:
        self.url = main.url
        self.request_metrics = main.request_metrics
        self.cipher = main.cipher
        """How local copies are encrypted, with the main store's key: also copies of segments."""
        self._main = main
        self._open_log = open_log
        self._new_id = new_id
        self._chosen = chosen
        self._log: ObjectStore | None = None
        self._finding = asyncio.Lock()

    async def put(self, name: str, data: bytes) -> None:
        await (await self._holder(name)).put(name, data)

    async def create(self, name: str, data: bytes) -> None:
        if name.startswith(CHECKPOINTS):
            await self._found()
        if name == _FIRST_SLOT:
            await self._check_new()
        await (await self._holder(name)).create(name, data)

    async def get(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        return await (await self._holder(name)).get(name, start, length)

    async def get_parts(
        self, parts: Sequence[ObjectPart], patience_s: float | None = None
    ) -> Sequence[bytes | None]:
        """All parts in one call, unless one is of the log: each object of the log is looked for."""
        if any(part.name.startswith(SEGMENTS) for part in parts):
            return await get_each(self, parts, patience_s)
        return await self._main.get_parts(parts, patience_s)

    async def list(self, prefix: str, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        concerned = prefix.startswith(SEGMENTS) or SEGMENTS.startswith(prefix)
        log = await self._found() if concerned else self._main
        has_log_store = segments_due = log is not self._main
        async for info in self._main.list(prefix, start_after):
            if info.name == LOG_STORE or (has_log_store and info.name.startswith(SEGMENTS)):
                continue
            if segments_due and info.name > SEGMENTS:
                segments_due = False
                async for segment in log.list(max(prefix, SEGMENTS), start_after):
                    yield segment
            yield info
        if segments_due:
            async for segment in log.list(max(prefix, SEGMENTS), start_after):
                yield segment

    async def head(self, name: str) -> ObjectInfo:
        return await (await self._holder(name)).head(name)

    async def delete(self, name: str) -> None:
        await (await self._holder(name)).delete(name)

    def apart(self, effects: Effects) -> "StoreWithLog":
        def open_log(url: str) -> ObjectStore:
            return self._open_log(url).apart(effects)

        chosen = None if self._chosen is None else self._chosen.apart(effects)
        return StoreWithLog(self._main.apart(effects), open_log, self._new_id, chosen)

    async def close(self) -> None:
        for store in {self._main, self._log, self._chosen}:
            if store is not None:
                await store.close()

    async def _check_new(self) -> None:
        """Raises ConfigError for a place that a new store cannot begin in."""
        await check_no_log(self._main)
        # An encrypted store without a slot: its first start came no further.
        async for _ in self._main.list(KEYS):
            raise without_key(f"store {self.url}")

    async def _holder(self, name: str) -> ObjectStore:
        return await self._found() if name.startswith(SEGMENTS) else self._main

    async def _found(self) -> ObjectStore:
        if self._log is None:
            async with self._finding:
                if self._log is None:
                    self._log = await self._find()
        return self._log

    async def _find(self) -> ObjectStore:
        log_partner = await _partner(self._main, LOG_STORE)
        if log_partner is None:
            return self._main if self._chosen is None else await self._begin(self._chosen)
        if self._chosen is not None and self._chosen.url != log_partner.url:
            raise self._elsewhere(self._chosen, log_partner)
        log = self._chosen or self._open_log(log_partner.url)
        named_owner = await _partner(log, LOG_OF)
        if named_owner is None or named_owner.id != log_partner.id:
            raise RestoreError(
                f"log store {log.url}",
                expected=f"the log of {self.url}",
                found=f"no {LOG_OF}" if named_owner is None else f"the log of {named_owner.url}",
                action="bring the log store back, or restore both stores from one backup: without "
                "the log no checkpoint can be restored; nothing was changed",
            )
        return log

    async def _begin(self, log: ObjectStore) -> ObjectStore:
        """Make `log` the place of the log of a store that has none yet."""
        if log.url == self.url:
            raise ConfigError(
                f"log store {log.url}",
                expected="another URL than the store's",
                found="the same",
                action="leave the option out: the log is in the store itself by default",
            )
        async for _ in self._main.list(SEGMENTS):
            raise ConfigError(
                f"log store {log.url}",
                expected=f"a new store, for the log of {self.url} stays where it began",
                found="segments beside its tables",
                action="start without a log store, or begin a new store with `tidelog clone "
                "URL@latest NEWURL --log-store URL`",
            )
        owner = Partner(self._new_id(), self.url)
        try:
            await create_once(log, LOG_OF, seal_document(owner))
        except ObjectExistsError:
            # A start of this store that came no further, or one that runs beside this one.
            named_owner = await _partner(log, LOG_OF)
            if named_owner is None or named_owner.url != self.url or await self._is_of_earlier(log):
                raise ConfigError(
                    f"log store {log.url}",
                    expected="a place that no other store has its log in",
                    found="one that was removed just now"
                    if named_owner is None
                    else f"the log of {named_owner.url}",
                    action="choose another URL, or a prefix below this one; if the other store is "
                    "gone for good, delete what is here",
                ) from None
            owner = named_owner
        try:
            await create_once(self._main, LOG_STORE, seal_document(Partner(owner.id, log.url)))
        except ObjectExistsError:
            recorded = await _partner(self._main, LOG_STORE)
            if recorded is None or recorded.id != owner.id:
                raise self._elsewhere(log, recorded) from None
        return log

    async def _is_of_earlier(self, log: ObjectStore) -> bool:
        """Whether `log` has segments of a store that was at this URL before and was removed."""
        async for _ in log.list(SEGMENTS):
            return await _partner(self._main, LOG_STORE) is None
        return False

    def _elsewhere(self, chosen: ObjectStore, recorded: Partner | None) -> ConfigError:
        return ConfigError(
            f"log store {chosen.url}",
            expected="the place where the store has its log, which never changes",
            found="another one" if recorded is None else recorded.url,
            action="leave the option out: the store knows where its log is",
        )


async def _partner(store: ObjectStore, name: str) -> Partner | None:
    try:
        data = await store.get(name)
    except ObjectNotFoundError:
        return None
    return open_document(data, f"{store.url}/{name}", Partner)
