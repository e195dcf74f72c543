"""Every store that needs no server keeps the port's promises."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from fsspec.implementations.asyn_wrapper import AsyncFileSystemWrapper
from fsspec.implementations.memory import MemoryFileSystem

from tests.support.faulty_store import FaultyStore
from tests.unit.storage.conformance import Opener, RaceConformance, StoreConformance
from tidelog.effects import Effects, InlineOffload, SystemClock
from tidelog.storage.fsspec_store import FsspecStore
from tidelog.storage.local import LocalStore
from tidelog.storage.memory import MemoryStore
from tidelog.storage.open import StoreBelow
from tidelog.storage.retry import RetryingStore
from tidelog.storage.retry_policy import LOCAL_POLICY, RetryPolicy
from tidelog_bench.store.latency import LatencyProfile
from tidelog_bench.store.modelled import ModelledStore

INLINE = Effects(offload=InlineOffload())


class TestMemoryStore(StoreConformance, RaceConformance):
    @pytest.fixture
    def opener(self) -> Opener:
        store = MemoryStore()
        return lambda: store


class TestLocalStore(StoreConformance, RaceConformance):
    @pytest.fixture
    def opener(self, tmp_path: Path) -> Iterator[Opener]:
        effects = Effects()
        yield lambda: LocalStore(tmp_path / "store", effects)
        effects.offload.close()


class TestLocalStoreWithoutSync(StoreConformance, RaceConformance):
    @pytest.fixture
    def opener(self, tmp_path: Path) -> Opener:
        return lambda: LocalStore(tmp_path, INLINE, durable=False)


class TestFaultyStoreWithoutFaults(StoreConformance, RaceConformance):
    @pytest.fixture
    def opener(self) -> Opener:
        store = MemoryStore()
        return lambda: FaultyStore(store, [], SystemClock(), Random(0))


class TestModelledStore(StoreConformance, RaceConformance):
    @pytest.fixture
    def opener(self) -> Opener:
        store = MemoryStore()
        return lambda: ModelledStore(store, SystemClock(), LatencyProfile(latency_ms=0.1))


class TestRetryingStore(StoreConformance, RaceConformance):
    @pytest.fixture
    def opener(self) -> Opener:
        store = MemoryStore()
        return lambda: RetryingStore(store, RetryPolicy(), INLINE)


class TestRetryingLocalStore(StoreConformance, RaceConformance):
    @pytest.fixture
    def opener(self, tmp_path: Path) -> Opener:
        return lambda: RetryingStore(LocalStore(tmp_path, INLINE), LOCAL_POLICY, INLINE)


class TestStoreBelow(StoreConformance, RaceConformance):
    """A store below a prefix of another one sees no object outside of the prefix."""

    @pytest.fixture
    def opener(self) -> Opener:
        whole = MemoryStore()
        for name in (
            "name",
            "a",
            "partitions/00006/name",
            "partitions/00007x",
            "partitions/00008/a",
        ):
            asyncio.run(whole.put(name, b"of another"))
        return lambda: StoreBelow(whole, "partitions/00007")


class TestFsspecStore(StoreConformance, RaceConformance):
    """Run inline, the memory file system's create is atomic."""

    @pytest.fixture
    def opener(self) -> Opener:
        filesystem = MemoryFileSystem(global_store=False, skip_instance_cache=True)
        return lambda: FsspecStore("memory://x", filesystem, "/x", INLINE, atomic_create=True)


class RefusingEmptyRanges(MemoryFileSystem):
    """As file systems over HTTP do."""

    def cat_file(self, path: str, start: int | None = None, end: int | None = None) -> bytes:
        if start == end or (start or 0) >= max(self.info(path)["size"], 1):
            raise OSError("416 Range Not Satisfiable")
        data: bytes = super().cat_file(path, start, end)
        return data


class TestFsspecStoreThatRefusesEmptyRanges(StoreConformance):
    @pytest.fixture
    def opener(self) -> Opener:
        filesystem = RefusingEmptyRanges(global_store=False, skip_instance_cache=True)
        return lambda: FsspecStore("memory://x", filesystem, "/x", INLINE, atomic_create=True)


class TestAsyncFsspecStore(StoreConformance):
    """Its threads check and then write, so it is not raced."""

    @pytest.fixture
    def opener(self) -> Opener:
        inner = MemoryFileSystem(global_store=False, skip_instance_cache=True)
        filesystem = AsyncFileSystemWrapper(inner, asynchronous=True)
        return lambda: FsspecStore("memory://x", filesystem, "/x", INLINE, atomic_create=True)
