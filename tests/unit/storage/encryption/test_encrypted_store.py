"""An encrypted store is a store like any other for who has its key, and nothing for who has not."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from tests.support.faults import Failure, SteerableStore
from tests.unit.storage.conformance import names
from tests.unit.storage.encryption.test_sealed import EFFECTS, FIRST, SECOND, key_file
from tidelog import open_store
from tidelog.errors import ConfigError, CorruptObjectError, ObjectExistsError, StoreUnreachableError
from tidelog.storage.document import seal_document
from tidelog.storage.encryption.keys import LocalKeys
from tidelog.storage.encryption.ring import StoredKeys, rotate
from tidelog.storage.encryption.sealed import CHUNK
from tidelog.storage.encryption.store import EncryptedStore
from tidelog.storage.memory import MemoryStore
from tidelog.storage.port import ObjectStore

SLOT = "checkpoints/00000000.json"


def keys(*which: bytes) -> LocalKeys:
    return LocalKeys(which, "the key of the test", EFFECTS)


def encrypted(inner: ObjectStore, *which: bytes) -> EncryptedStore:
    return EncryptedStore(inner, keys(*(which or (FIRST,))), EFFECTS)


class Requests(MemoryStore):
    """Counts what is asked of it."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    async def get(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        self.asked.append(f"get {name} {start} {length}")
        return await super().get(name, start, length)


@pytest.fixture
def inner() -> MemoryStore:
    return MemoryStore()


async def test_what_is_stored_shows_neither_content_nor_equal_content(inner: MemoryStore) -> None:
    store = encrypted(inner)
    await store.put("a", b"the same words" * 100)
    await store.put("b", b"the same words" * 100)
    stored = [await inner.get(name) for name in ("a", "b")]
    assert stored[0] != stored[1]
    assert not any(b"same words" in each for each in stored)
    assert await store.get("a") == await encrypted(inner).get("b")


async def test_two_who_begin_a_store_at_once_have_the_same_keys(inner: MemoryStore) -> None:
    first, second = encrypted(inner), encrypted(inner)
    await asyncio.gather(first.put("a", b"1"), second.put("b", b"2"))
    assert (await first.get("b"), await second.get("a")) == (b"2", b"1")


async def test_another_key_opens_nothing_and_changes_nothing(inner: MemoryStore) -> None:
    await encrypted(inner).put("a", b"content")
    before = {name: await inner.get(name) for name in await names(inner)}
    other = encrypted(inner, SECOND)
    for call in (other.get("a"), other.put("a", b"x"), other.create("b", b"x"), names(other)):
        with pytest.raises(ConfigError, match=r"the key of the test.*found another key"):
            await call
    assert {name: await inner.get(name) for name in await names(inner)} == before


async def test_a_store_that_is_not_encrypted_is_refused_with_a_key(inner: MemoryStore) -> None:
    await inner.put(SLOT, b"{}")
    store = encrypted(inner)
    for call in (store.get(SLOT), store.put("a", b"x"), names(store), store.head(SLOT)):
        with pytest.raises(ConfigError, match="objects that are not encrypted, such as check"):
            await call
    assert await names(inner) == [SLOT]


async def test_objects_that_were_swapped_or_brought_from_another_store_are_refused(
    inner: MemoryStore,
) -> None:
    store = encrypted(inner)
    await store.put("a", b"first")
    await store.put("b", b"second")
    await inner.put("b", await inner.get("a"))
    with pytest.raises(CorruptObjectError, match="/b does not open"):
        await store.get("b")
    other = MemoryStore()
    await encrypted(other).put("a", b"other")
    await inner.put("a", await other.get("a"))
    with pytest.raises(CorruptObjectError, match="a key of this store"):
        await store.get("a")


async def test_an_object_that_somebody_wrote_without_the_key_is_refused(inner: MemoryStore) -> None:
    await encrypted(inner).put("a", b"content")
    await inner.put("b", b"plain")
    with pytest.raises(CorruptObjectError, match="one that is not encrypted"):
        await encrypted(inner).get("b")


@pytest.mark.parametrize(
    "damage", [lambda text: text[:-20], lambda text: b"[]"], ids=["cut", "other"]
)
async def test_a_damaged_document_of_keys_is_told_as_such(
    damage: Callable[[bytes], bytes], inner: MemoryStore
) -> None:
    await encrypted(inner).put("a", b"content")
    name = "keys/00000001.json"
    await inner.put(name, damage(await inner.get(name)))
    with pytest.raises(CorruptObjectError, match=r"^object \S+keys/00000001\.json"):
        await encrypted(inner).get("a")


async def test_ranges_of_an_object_ask_for_its_header_once() -> None:
    inner = Requests()
    data = bytes(range(256)) * 1024
    await encrypted(inner).put("a", data)
    reader = encrypted(inner)
    assert await reader.get("a", 100_000, 50_000) == data[100_000:150_000]
    assert await reader.get("a", 3, 4) == data[3:7]
    asked = [each for each in inner.asked if each.startswith("get a")]
    stored = CHUNK + 16
    assert asked == ["get a 0 64", f"get a {64 + stored} {2 * stored}", f"get a 64 {stored}"]


async def test_a_range_of_an_object_that_somebody_overwrote_is_of_the_new_one(
    inner: MemoryStore,
) -> None:
    store = encrypted(inner)
    await store.put("a", b"old content")
    await encrypted(inner).put("a", b"new content")
    assert await store.get("a", 0, 3) == b"new"


class TestRotation:
    async def test_only_the_new_key_opens_what_was_written_before_and_after(
        self, inner: MemoryStore
    ) -> None:
        store = encrypted(inner)
        await store.put("before", b"1")
        stored = await inner.get("before")
        await rotate(inner, keys(FIRST), keys(SECOND), EFFECTS)
        assert await inner.get("before") == stored
        await encrypted(inner, SECOND).put("after", b"2")
        reader = encrypted(inner, SECOND)
        assert (await reader.get("before"), await reader.get("after")) == (b"1", b"2")
        with pytest.raises(ConfigError, match="the key that the store was begun with or last"):
            await encrypted(inner, FIRST).get("before")
        assert await names(inner, "keys/") == ["keys/00000002.json"]

    async def test_who_has_the_store_open_goes_on_and_reads_what_is_new_with_both_keys(
        self, inner: MemoryStore
    ) -> None:
        store = encrypted(inner, FIRST, SECOND)
        await store.put("before", b"1")
        await rotate(inner, keys(FIRST), keys(SECOND), EFFECTS)
        await encrypted(inner, SECOND).put("after", b"2")
        assert await store.get("after") == b"2"
        await store.put("later", b"3")
        assert await encrypted(inner, SECOND).get("later") == b"3"

    async def test_a_rotation_that_was_cut_short_is_repeated(self, inner: MemoryStore) -> None:
        await encrypted(inner).put("a", b"1")
        left = await inner.get("keys/00000001.json")
        await rotate(inner, keys(FIRST), keys(SECOND), EFFECTS)
        await inner.put("keys/00000001.json", left)
        assert await encrypted(inner, SECOND).get("a") == b"1"
        await rotate(inner, keys(SECOND, FIRST), keys(SECOND), EFFECTS)
        assert await names(inner, "keys/") == ["keys/00000003.json"]

    async def test_a_key_cannot_be_taken_out_of_a_document(self, inner: MemoryStore) -> None:
        """Else whoever writes to the store could make a job use a key that was rotated away."""
        await encrypted(inner).put("a", b"1")
        await rotate(inner, keys(FIRST), keys(FIRST), EFFECTS)
        name = "keys/00000002.json"
        body = msgspec.json.decode(await inner.get(name))["body"]
        found = msgspec.convert(body, StoredKeys)
        shorter = msgspec.structs.replace(found, keys=found.keys[:1])
        await inner.put(name, seal_document(shorter))
        with pytest.raises(ConfigError, match="found another key"):
            await encrypted(inner).get("a")


async def _begin(store: ObjectStore, *which: bytes) -> None:
    await encrypted(store, *which).create(SLOT, b"content")


async def _rotate(store: ObjectStore, *which: bytes) -> None:
    await rotate(store, keys(*which), keys(SECOND), EFFECTS)


@pytest.mark.parametrize("after", [False, True], ids=["refused", "answer lost"])
@pytest.mark.parametrize("operation", ["list", "get", "create", "delete"])
async def test_a_beginning_or_rotation_that_fails_at_any_call_leaves_a_store_that_opens(
    operation: str, after: bool
) -> None:
    async def struck(step: Callable[..., Awaitable[None]], nth: int) -> bool:
        inner = MemoryStore()
        if step is _rotate:
            await _begin(inner, FIRST)
        store = SteerableStore(inner)
        store.fail(Failure(operation, after=after, nth=nth))
        try:
            await step(store, FIRST)
        except StoreUnreachableError:
            store.fail()
            with contextlib.suppress(ObjectExistsError):  # as the retries of a store settle it
                await step(store, SECOND, FIRST)
            assert await encrypted(inner, SECOND, FIRST).get(SLOT) == b"content"
            return True
        return False

    calls = [0, 0]
    for number, step in enumerate((_begin, _rotate)):
        while await struck(step, calls[number] + 1):
            calls[number] += 1
    assert sum(calls) >= 1, calls


class TestOpened:
    """Through `open_store`, as users open stores."""

    async def test_nothing_is_begun_without_a_key_where_an_encrypted_store_was_begun(
        self, tmp_path: Path
    ) -> None:
        place, key = str(tmp_path / "store"), key_file(tmp_path / "key", FIRST)
        store = open_store(place, effects=EFFECTS, encryption_key=key)
        await store.put("segments/00000000-p-0000000000.seg", b"a start that came no further")
        with pytest.raises(ConfigError, match="no encryption key was given"):
            await open_store(place, effects=EFFECTS).create(SLOT, b"{}")

    async def test_the_log_in_a_store_of_its_own_is_encrypted_too(self, tmp_path: Path) -> None:
        place, key = str(tmp_path / "store"), key_file(tmp_path / "key", FIRST)
        segment = "segments/00000000-p-0000000000.seg"
        log = str(tmp_path / "log")
        store = open_store(place, effects=EFFECTS, log_url=log, encryption_key=key)
        await store.create(SLOT, b"{}")
        await store.put(segment, b"words of the log")
        assert b"words" not in (tmp_path / "log" / segment).read_bytes()
        assert b"log" not in (tmp_path / "store" / "log-store.json").read_bytes()
        again = open_store(place, effects=EFFECTS, encryption_key=key)
        assert await again.get(segment) == b"words of the log"
