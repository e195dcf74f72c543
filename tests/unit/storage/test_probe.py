"""The probe passes an honest store, and catches every lie a store can tell."""

import asyncio
from collections.abc import AsyncIterator
from random import Random

import pytest

from tests.support.clock import VirtualClock
from tests.support.faults import Fault, FaultKind, FaultyStore
from tests.unit.storage.conformance import names
from tidelog import Effects, ObjectExistsError
from tidelog.effects import InlineOffload
from tidelog.storage.memory import MemoryStore
from tidelog.storage.port import ObjectInfo, ObjectStore
from tidelog.storage.probe import ProbeReport, probe_store

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


def probe(*stores: ObjectStore, effects: Effects = EFFECTS) -> ProbeReport:
    return asyncio.run(probe_store(stores, effects, racers=8, rounds=3))


def failed(report: ProbeReport) -> list[str]:
    return [check.name for check in report.checks if not check.passed]


def test_an_honest_store_passes_every_check() -> None:
    store = MemoryStore()
    report = probe(store, store)
    assert report.passed
    assert report.url == "memory://"
    assert [check.name for check in report.checks] == [
        "reach",
        "read after write",
        "refuse overwrite",
        "create race",
        "list",
        "clean up",
    ]


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
    store = FaultyStore(MemoryStore(), [Fault(FaultKind.FAIL)], VirtualClock(), Random(0))
    report = probe(store)
    assert failed(report) == ["reach", "clean up"]
    assert [operation for operation, _ in store.calls] == ["put", "delete"]


def test_a_racer_without_an_answer_fails_the_race_and_its_object_is_deleted() -> None:
    creates_before_the_race = 10
    nth = creates_before_the_race + 1
    fault = Fault(FaultKind.FAIL, operation="create", nth=nth, after=True)
    inner = MemoryStore()
    report = probe(FaultyStore(inner, [fault], VirtualClock(), Random(0)))
    assert failed(report) == ["create race"]
    assert asyncio.run(names(inner)) == []
