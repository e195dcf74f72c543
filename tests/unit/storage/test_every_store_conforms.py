"""Every store that needs no server keeps the port's promises."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from fsspec.implementations.asyn_wrapper import AsyncFileSystemWrapper
from fsspec.implementations.memory import MemoryFileSystem

from tests.support.clock import VirtualClock
from tests.support.faults import Failure, Fault, FaultKind, FaultyStore
from tests.unit.storage.conformance import Opener, RaceConformance, StoreConformance, names
from tests.unit.storage.encryption.test_encrypted_store import encrypted
from tidelog import ObjectExistsError
from tidelog.effects import Effects, InlineOffload, SystemClock
from tidelog.storage.errors import check_content
from tidelog.storage.fsspec_store import FsspecStore
from tidelog.storage.local import LocalStore
from tidelog.storage.log_store import StoreWithLog
from tidelog.storage.memory import MemoryStore
from tidelog.storage.open import StoreBelow
from tidelog.storage.port import ObjectInfo, ObjectStore
from tidelog.storage.probe import ProbeReport, probe_store
from tidelog.storage.retry import RetryingStore
from tidelog.storage.retry_policy import LOCAL_POLICY, RetryPolicy
from tidelog_bench.store import LatencyProfile, ModelledStore

INLINE = Effects(offload=InlineOffload())


def shared(wrap: Callable[[MemoryStore], ObjectStore]) -> Callable[[Path], Opener]:
    """Every connection is a wrapper of its own around one store in memory."""

    def opener(directory: Path) -> Opener:
        inner = MemoryStore()
        return lambda: wrap(inner)

    return opener


def below_a_prefix(directory: Path) -> Opener:
    """A store below a prefix of another one sees no object outside of the prefix."""
    whole = MemoryStore()
    outside = ("name", "a", "partitions/00006/name", "partitions/00007x", "partitions/00008/a")
    for name in outside:
        asyncio.run(whole.put(name, b"of another"))
    return lambda: StoreBelow(whole, "partitions/00007")


def with_its_log_elsewhere(directory: Path) -> Opener:
    main, log = MemoryStore("memory://main"), MemoryStore("memory://log")
    return lambda: StoreWithLog(main, lambda url: log, lambda: "1" * 16, log)


class RefusingEmptyRanges(MemoryFileSystem):
    """As file systems over HTTP do."""

    def cat_file(self, path: str, start: int | None = None, end: int | None = None) -> bytes:
        if start == end or (start or 0) >= max(self.info(path)["size"], 1):
            raise OSError("416 Range Not Satisfiable")
        data: bytes = super().cat_file(path, start, end)
        return data


class CreatingStore(FsspecStore):
    """Creates by the file system, as tests of all other promises need it."""

    async def create(self, name: str, data: bytes) -> None:
        check_content(name, data)
        await self._write(name, data, mode="create")


def in_a_file_system(kind: type[MemoryFileSystem]) -> Opener:
    """Run inline, the memory file system's create is atomic."""
    filesystem = kind(global_store=False, skip_instance_cache=True)
    return lambda: CreatingStore("memory://x", filesystem, "/x", INLINE)


QUICK = LatencyProfile(latency_ms=0.1)
OPENERS: dict[str, Callable[[Path], Opener]] = {
    "memory": shared(lambda inner: inner),
    "local without sync": lambda path: lambda: LocalStore(path, INLINE, durable=False),
    "faulty without faults": shared(lambda s: FaultyStore(s, [], SystemClock())),
    "modelled": shared(lambda inner: ModelledStore(inner, SystemClock(), QUICK)),
    "retrying": shared(lambda inner: RetryingStore(inner, RetryPolicy(), INLINE)),
    "retrying local": lambda path: (
        lambda: RetryingStore(LocalStore(path, INLINE), LOCAL_POLICY, INLINE)
    ),
    "below a prefix": below_a_prefix,
    "encrypted": shared(encrypted),
    "with its log elsewhere": with_its_log_elsewhere,
    "with no other log": shared(lambda s: StoreWithLog(s, lambda url: s, lambda: "1" * 16)),
    "fsspec": lambda _: in_a_file_system(MemoryFileSystem),
    "fsspec without empty ranges": lambda _: in_a_file_system(RefusingEmptyRanges),
}


@pytest.mark.parametrize("kind", OPENERS)
class TestStores(StoreConformance, RaceConformance):
    @pytest.fixture
    def opener(self, kind: str, tmp_path: Path) -> Opener:
        return OPENERS[kind](tmp_path)


class TestLocalStoreWithThreads(StoreConformance, RaceConformance):
    @pytest.fixture
    def opener(self, tmp_path: Path) -> Iterator[Opener]:
        effects = Effects()
        yield lambda: LocalStore(tmp_path / "store", effects)
        effects.offload.close()


class TestAsyncFsspecStore(StoreConformance):
    """Its threads check and then write, so it is not raced."""

    @pytest.fixture
    def opener(self) -> Opener:
        inner = MemoryFileSystem(global_store=False, skip_instance_cache=True)
        filesystem = AsyncFileSystemWrapper(inner, asynchronous=True)
        return lambda: CreatingStore("memory://x", filesystem, "/x", INLINE)


EFFECTS = Effects(rng=Random(3), offload=InlineOffload())


class Overwriting(MemoryStore):
    async def create(self, name: str, data: bytes) -> None:
        await self.put(name, data)


class RefusingButOverwriting(MemoryStore):
    async def create(self, name: str, data: bytes) -> None:
        try:
            await super().create(name, data)
        except ObjectExistsError:
            await self.put(name, data)
            raise


class CheckingThenWriting(MemoryStore):
    async def create(self, name: str, data: bytes) -> None:
        taken = [info async for info in self.list(name)]
        await asyncio.sleep(0)
        await (super().create if taken else self.put)(name, data)


class Disordered(MemoryStore):
    async def list(self, prefix: str, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        for info in reversed([info async for info in super().list(prefix, start_after)]):
            yield info


class IgnoringStartAfter(MemoryStore):
    def list(self, prefix: str, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        return super().list(prefix)


class Stale(MemoryStore):
    async def put(self, name: str, data: bytes) -> None:
        if not [info async for info in self.list(name)]:
            await super().put(name, data)


class IgnoringDeletes(MemoryStore):
    async def delete(self, name: str) -> None:
        """Says yes, does nothing."""


class IgnoringRanges(MemoryStore):
    async def get(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        return await super().get(name)


def probe(*stores: ObjectStore) -> ProbeReport:
    return asyncio.run(probe_store(stores, EFFECTS, racers=8, rounds=3))


def failed(report: ProbeReport) -> list[str]:
    return [check.name for check in report.checks if not check.passed]


def test_an_honest_store_passes_every_check() -> None:
    store = MemoryStore()
    report = probe(store, store)
    assert report.passed
    assert report.url == "memory://"
    names = [check.name for check in report.checks]
    assert names[:3] == ["reach", "read after write", "refuse overwrite"]
    assert names[3:] == ["create race", "list", "large objects", "clean up"]
    assert [(of.operation, of.bytes) for of in report.bandwidths] == [
        ("put", 32 << 20),
        ("get", 32 << 20),
    ]
    assert all(of.bytes_per_s > 0 for of in report.bandwidths)


@pytest.mark.parametrize(
    ("store", "caught"),
    [
        (Overwriting(), ["refuse overwrite", "create race"]),
        (RefusingButOverwriting(), ["refuse overwrite", "create race"]),
        (CheckingThenWriting(), ["create race"]),
        (Disordered(), ["list"]),
        (IgnoringStartAfter(), ["list"]),
        (Stale(), ["read after write"]),
        (IgnoringDeletes(), ["read after write"]),
        (IgnoringRanges(), ["read after write"]),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, MemoryStore) else "",
)
def test_a_lie_is_caught_by_its_check(store: MemoryStore, caught: list[str]) -> None:
    report = probe(store)
    assert failed(report) == caught
    assert not report.passed


def test_a_store_that_cannot_be_reached_is_asked_nothing_more() -> None:
    store = FaultyStore(MemoryStore(), [Fault(FaultKind.FAIL)], VirtualClock())
    report = probe(store)
    assert failed(report) == ["reach", "clean up"]
    assert [operation for operation, _ in store.calls] == ["put", "delete"]


def test_a_racer_without_an_answer_fails_the_race_and_its_object_is_deleted() -> None:
    before_the_race = 10
    fault = Failure("create", nth=before_the_race + 1, after=True)
    inner = MemoryStore()
    report = probe(FaultyStore(inner, [fault], VirtualClock()))
    assert failed(report) == ["create race"]
    assert asyncio.run(names(inner)) == []
