"""A faulty store fails as planned and only as planned."""

import asyncio
from random import Random

import pytest

from tests.support.clock import VirtualClock
from tests.support.faulty_store import Fault, FaultKind, FaultyStore
from tests.unit.storage.conformance import names
from tidelog.errors import ObjectExistsError, StoreFullError, StoreUnreachableError
from tidelog.storage.errors import store_full
from tidelog.storage.memory import MemoryStore

CALLS = {"put": (b"x",), "create": (b"x",), "get": (), "head": (), "delete": ()}


def faulty(*faults: Fault, seed: int = 0) -> tuple[FaultyStore, MemoryStore, VirtualClock]:
    inner, clock = MemoryStore(), VirtualClock()
    return FaultyStore(inner, faults, clock, Random(seed)), inner, clock


async def test_a_failure_before_the_effect_leaves_the_store_untouched() -> None:
    store, inner, _ = faulty(Fault(FaultKind.FAIL))
    for operation, data in CALLS.items():
        with pytest.raises(StoreUnreachableError, match=f"before the effect of {operation}"):
            await getattr(store, operation)("name", *data)
    with pytest.raises(StoreUnreachableError):
        await names(store)
    assert await names(inner) == []


@pytest.mark.parametrize("operation", ["put", "create"])
async def test_a_failure_after_the_effect_leaves_the_effect(operation: str) -> None:
    store, inner, _ = faulty(Fault(FaultKind.FAIL, after=True))
    with pytest.raises(StoreUnreachableError, match="after the effect"):
        await getattr(store, operation)("name", b"x")
    assert await inner.get("name") == b"x"


async def test_a_fault_strikes_only_its_operation_prefix_and_occurrence() -> None:
    store, _, _ = faulty(Fault(FaultKind.FAIL, operation="put", prefix="segments/", nth=2))
    await store.put("segments/1", b"x")
    await store.put("checkpoints/1", b"x")
    await store.head("segments/1")
    with pytest.raises(StoreUnreachableError, match="segments/2"):
        await store.put("segments/2", b"x")
    await store.put("segments/3", b"x")
    assert store.calls == {"put": 4, "head": 1}


def test_a_fault_with_a_probability_is_repeated_by_its_seed() -> None:
    async def outcomes(seed: int) -> list[bool]:
        store, _, _ = faulty(Fault(FaultKind.FAIL, probability=0.5), seed=seed)
        failed = []
        for _ in range(40):
            try:
                await store.put("name", b"x")
                failed.append(False)
            except StoreUnreachableError:
                failed.append(True)
        return failed

    first = asyncio.run(outcomes(1))
    assert first == asyncio.run(outcomes(1))
    assert first != asyncio.run(outcomes(2))
    assert 5 < sum(first) < 35


async def test_a_fault_raises_the_error_it_is_given() -> None:
    store, _, _ = faulty(Fault(FaultKind.FAIL, error=store_full))
    with pytest.raises(StoreFullError, match="name"):
        await store.put("name", b"x")


async def test_a_delayed_call_takes_its_time() -> None:
    store, inner, clock = faulty(Fault(FaultKind.DELAY, seconds=3.0))
    await store.put("name", b"x")
    assert clock.monotonic() == 3.0
    assert await inner.get("name") == b"x"


@pytest.mark.parametrize("after", [False, True])
async def test_a_stalled_call_waits_for_its_release(after: bool) -> None:
    store, inner, clock = faulty(Fault(FaultKind.STALL, nth=1, after=after))
    call = asyncio.ensure_future(store.put("name", b"x"))
    await clock.advance(1000.0)
    assert (store.stalled, call.done()) == (1, False)
    assert await names(inner) == (["name"] if after else [])
    store.release()
    await call
    assert store.stalled == 0
    assert await inner.get("name") == b"x"


async def test_a_call_after_a_release_stalls_again() -> None:
    store, _, clock = faulty(Fault(FaultKind.STALL))
    first = asyncio.ensure_future(store.put("name", b"x"))
    await clock.advance(1.0)
    store.release()
    await first
    second = asyncio.ensure_future(store.put("name", b"x"))
    await clock.advance(1.0)
    assert (store.stalled, second.done()) == (1, False)
    second.cancel()
    await asyncio.wait([second])
    assert store.stalled == 0


async def test_a_duplicated_create_finds_its_own_object() -> None:
    store, inner, _ = faulty(Fault(FaultKind.DUPLICATE))
    with pytest.raises(ObjectExistsError):
        await store.create("name", b"x")
    assert await inner.get("name") == b"x"
