"""The port's promises as tests: a subclass gives `opener`, and its adapter must keep them all."""

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise, product

import pytest

from tidelog.effects import Effects
from tidelog.errors import ConfigError, ObjectExistsError, ObjectNotFoundError, TidelogError
from tidelog.storage.port import ObjectPart, ObjectStore

Opener = Callable[[], ObjectStore]
"""Opens one more connection to the same store, empty at the start of the test."""


@asynccontextmanager
async def opened(opener: Opener) -> AsyncIterator[ObjectStore]:
    store = opener()
    try:
        yield store
    finally:
        await store.close()


async def names(store: ObjectStore, prefix: str = "", start_after: str = "") -> list[str]:
    return [info.name async for info in store.list(prefix, start_after)]


def assert_all_is_closed(caplog: pytest.LogCaptureFixture) -> None:
    """No connection is left to the garbage collector, which libraries complain about."""
    gc.collect()
    assert [record.message for record in caplog.records if record.name == "asyncio"] == []


async def fill(store: ObjectStore, *objects: str) -> None:
    for name in objects:
        await store.put(name, name.encode())


class StoreConformance:
    """What every store promises to one caller."""

    @pytest.fixture
    def opener(self) -> Opener:
        raise NotImplementedError("a subclass opens the store under test")

    async def test_what_was_put_last_is_read(self, opener: Opener) -> None:
        async with opened(opener) as store:
            for data in (bytes(range(256)) * 5000, b"shorter", b""):
                await store.put("segments/one.seg", data)
                assert await store.get("segments/one.seg") == data
                info = await store.head("segments/one.seg")
                assert (info.name, info.size) == ("segments/one.seg", len(data))

    async def test_it_is_read_from_another_event_loop_while_its_own_one_waits(
        self, opener: Opener, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with opened(opener) as store:
            await store.put("tables/one.sst", b"0123456789")
            assert await store.get("tables/one.sst", 2, 3) == b"234"
            effects = Effects()
            others = set(threading.enumerate())
            aside = effects.aside(effects)
            apart = [store.apart(aside.effects)]
            assert aside.run(lambda: apart[0].get("tables/one.sst", 4, 2), 60) == b"45"
            aside.close(apart[0].close)
            assert await store.get("tables/one.sst", 6, 2) == b"67"
            for thread in set(threading.enumerate()) - others:
                if thread.name == "tidelog-loop":
                    thread.join(60)
            apart.clear()
            assert_all_is_closed(caplog)

    async def test_a_request_that_is_under_way_at_the_end_leaves_no_connection(
        self, opener: Opener, caplog: pytest.LogCaptureFixture
    ) -> None:
        for turns in range(12):
            store = opener()
            request = asyncio.ensure_future(store.head("tables/none.sst"))
            for _ in range(turns):
                await asyncio.sleep(0)
            await store.close()
            await asyncio.wait([request], timeout=60)
            assert isinstance(request.exception(), TidelogError | RuntimeError)
            del store, request
        assert_all_is_closed(caplog)

    async def test_a_create_writes_an_absent_name_and_no_other(self, opener: Opener) -> None:
        async with opened(opener) as store:
            with pytest.raises(ConfigError):
                await store.create("created", b"")
            await store.put("put", b"first")
            await store.create("created", b"first")
            for name, second in product(("put", "created"), (b"first", b"other")):
                with pytest.raises(ObjectExistsError, match=name):
                    await store.create(name, second)
                assert await store.get(name) == b"first"
            assert await names(store) == ["created", "put"]

    async def test_a_ranged_get_returns_what_lies_in_the_range(self, opener: Opener) -> None:
        data = b"0123456789"
        async with opened(opener) as store:
            await store.put("name", data)
            for start, end in ((0, 4), (3, 7), (8, 18), (9, 10), (10, 15), (25, 30), (4, 4)):
                assert await store.get("name", start, end - start) == data[start:end]
            for start in (0, 3, 10):
                assert await store.get("name", start) == data[start:]

    async def test_parts_come_back_in_the_order_in_which_they_were_asked_for(
        self, opener: Opener
    ) -> None:
        async with opened(opener) as store:
            await store.put("dir/a", b"0123456789")
            await store.put("b", b"abcdef")
            parts = [
                ObjectPart(*part)
                for part in (("b", 2, 3), ("dir/a", 8, 2), ("b", 0, 1), ("dir/a", 0, 4))
            ]
            for count in range(1, len(parts) + 1):
                contents = await store.get_parts(parts[:count])
                assert list(contents) == [b"cde", b"89", b"a", b"0123"][:count]
                assert list(await store.get_parts(parts[:count], 60.0)) == list(contents)
            with pytest.raises(ObjectNotFoundError, match="absent"):
                await store.get_parts([*parts, ObjectPart("absent", 0, 1)])

    async def test_a_missing_object_is_named(self, opener: Opener) -> None:
        async with opened(opener) as store:
            await store.put("dir/name", b"x")
            for missing in ("absent", "dir", "dir/absent"):
                with pytest.raises(ObjectNotFoundError, match=missing):
                    await store.head(missing)
                for start, length in ((0, None), (2, 3), (0, 0)):
                    with pytest.raises(ObjectNotFoundError, match=missing):
                        await store.get(missing, start, length)

    async def test_a_deleted_object_is_gone_and_its_name_free(self, opener: Opener) -> None:
        async with opened(opener) as store:
            for absent in ("absent", "dir/absent"):
                await store.delete(absent)
            await fill(store, "dir/a", "dir/b")
            for _ in range(2):
                await store.delete("dir/a")
            with pytest.raises(ObjectNotFoundError):
                await store.get("dir/a")
            assert await names(store, "dir/") == ["dir/b"]
            await store.create("dir/a", b"again")
            assert await store.get("dir/a") == b"again"

    async def test_a_folder_can_be_filled_again_after_its_last_object_went(
        self, opener: Opener
    ) -> None:
        async with opened(opener) as store:
            for _ in range(2):
                await store.create("tables/00000001/aa.sst", b"x")
                await store.delete("tables/00000001/aa.sst")
            await store.put("tables/00000001/aa.sst", b"x")
            assert await names(store, "tables/") == ["tables/00000001/aa.sst"]

    async def test_a_list_is_in_byte_order_across_folders(self, opener: Opener) -> None:
        async with opened(opener) as store:
            stored = ["b", "a/b", "a/a/a", "a-b", "a.b", "a0", "A", "a/b0", "a/a-", "a/Z"]
            assert await names(store) == await names(store, "no/such/folder/") == []
            await fill(store, *stored)
            listed = [info async for info in store.list("")]
            assert [info.name for info in listed] == sorted(stored)
            assert all(info.size == len(info.name) for info in listed)

    async def test_a_list_returns_exactly_the_names_with_the_prefix(self, opener: Opener) -> None:
        async with opened(opener) as store:
            await fill(store, "a/bb", "a/b/c", "a/b/d/e", "a/c", "a/B", "ab", "b/b")
            assert await names(store, "a/b") == ["a/b/c", "a/b/d/e", "a/bb"]
            assert await names(store, "a/b/") == ["a/b/c", "a/b/d/e"]
            assert await names(store, "a/c/") == []
            assert await names(store, "a") == ["a/B", "a/b/c", "a/b/d/e", "a/bb", "a/c", "ab"]

    async def test_a_list_starts_strictly_after_the_given_name(self, opener: Opener) -> None:
        async with opened(opener) as store:
            stored = ["p/a", "p/b/x", "p/b/y", "p/c", "q"]
            await fill(store, *stored)
            for index, name in enumerate(stored[:4]):
                assert await names(store, "p/", name) == stored[index + 1 : 4]
            assert await names(store, "p/", "p/b/xx") == ["p/b/y", "p/c"]
            assert await names(store, "p/", "p/b") == ["p/b/x", "p/b/y", "p/c"]
            assert await names(store, "p/", "a") == stored[:4]
            assert await names(store, "p/", "p/zzz") == []
            assert await names(store, "", "p/c") == ["q"]

    async def test_any_printable_ascii_name_comes_back_unchanged(self, opener: Opener) -> None:
        async with opened(opener) as store:
            odd = "dir/a b+c=d&e%20f,g;h@i$j!k'(l)~_.-"
            await store.put(odd, b"odd")
            assert await store.get(odd) == b"odd"
            assert await names(store, "dir/a b+") == [odd]
            await store.delete(odd)
            assert await names(store) == []

    async def test_a_reader_never_sees_half_an_overwrite(self, opener: Opener) -> None:
        async with opened(opener) as store:
            versions = [bytes([version]) * 200_000 for version in range(6)]
            await store.put("name", versions[0])
            seen: list[bytes] = []

            async def read() -> None:
                for _ in range(12):
                    seen.append(await store.get("name"))

            async def write() -> None:
                for _, version in pairwise(versions):
                    await store.put("name", version)

            await asyncio.gather(read(), write())
            assert all(data in versions for data in seen)


class RaceConformance:
    """What a store promises to racing callers on connections of their own."""

    @pytest.fixture
    def opener(self) -> Opener:
        raise NotImplementedError("a subclass opens the store under test")

    async def test_a_create_has_exactly_one_winner(self, opener: Opener) -> None:
        stores = [opener() for _ in range(4)]
        try:
            for round_ in range(8):
                await self._race(stores, f"checkpoints/{round_:08d}.json")
        finally:
            for store in stores:
                await store.close()

    async def _race(self, stores: list[ObjectStore], name: str) -> None:
        authors = [f"author {author}".encode() * 1000 for author in range(16)]
        outcomes = await asyncio.gather(
            *(stores[i % len(stores)].create(name, data) for i, data in enumerate(authors)),
            return_exceptions=True,
        )
        winners = [data for data, outcome in zip(authors, outcomes, strict=True) if not outcome]
        assert len(winners) == 1
        assert all(isinstance(outcome, ObjectExistsError) for outcome in outcomes if outcome)
        assert await stores[0].get(name) == winners[0]
