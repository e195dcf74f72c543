"""Every store that needs no server keeps the port's promises."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from fsspec.implementations.asyn_wrapper import AsyncFileSystemWrapper
from fsspec.implementations.memory import MemoryFileSystem

from tests.support.faults import FaultyStore
from tests.unit.storage.conformance import Opener, RaceConformance, StoreConformance
from tidelog.effects import Effects, InlineOffload, SystemClock
from tidelog.storage.fsspec_store import FsspecStore
from tidelog.storage.local import LocalStore
from tidelog.storage.memory import MemoryStore
from tidelog.storage.open import StoreBelow
from tidelog.storage.port import ObjectStore
from tidelog.storage.retry import RetryingStore
from tidelog.storage.retry_policy import LOCAL_POLICY, RetryPolicy
from tidelog_bench.store.latency import LatencyProfile
from tidelog_bench.store.modelled import ModelledStore

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


def in_a_file_system(directory: Path) -> Opener:
    """Run inline, the memory file system's create is atomic."""
    filesystem = MemoryFileSystem(global_store=False, skip_instance_cache=True)
    return lambda: FsspecStore("memory://x", filesystem, "/x", INLINE, atomic_create=True)


QUICK = LatencyProfile(latency_ms=0.1)
OPENERS: dict[str, Callable[[Path], Opener]] = {
    "memory": shared(lambda inner: inner),
    "local without sync": lambda path: lambda: LocalStore(path, INLINE, durable=False),
    "faulty without faults": shared(lambda s: FaultyStore(s, [], SystemClock(), Random(0))),
    "modelled": shared(lambda inner: ModelledStore(inner, SystemClock(), QUICK)),
    "retrying": shared(lambda inner: RetryingStore(inner, RetryPolicy(), INLINE)),
    "retrying local": lambda path: (
        lambda: RetryingStore(LocalStore(path, INLINE), LOCAL_POLICY, INLINE)
    ),
    "below a prefix": below_a_prefix,
    "fsspec": in_a_file_system,
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
