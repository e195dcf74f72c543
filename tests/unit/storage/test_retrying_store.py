"""Retries, deadlines and hedges, with a fault at every call, in virtual time."""

import asyncio
from collections import Counter
from dataclasses import replace

import pytest

from tests.support.clock import VirtualClock, in_virtual_time
from tests.support.faults import Failure, Fault, FaultKind, FaultyStore
from tests.unit.storage.conformance import names
from tests.wire.calls import OPERATIONS, call
from tidelog.errors import (
    AccessDeniedError,
    ObjectExistsError,
    ObjectNotFoundError,
    StoreUnreachableError,
)
from tidelog.storage import retry
from tidelog.storage.errors import access_denied
from tidelog.storage.memory import MemoryStore
from tidelog.storage.port import ObjectPart, create_once
from tidelog.storage.retry import RetryingStore
from tidelog.storage.retry_policy import RetryPolicy

POLICY = RetryPolicy(attempt_timeout=10.0, hedge_after=2.0, deadline=60.0)

FAULTS = {
    "refused": Fault(FaultKind.FAIL, nth=1),
    "answer lost": Fault(FaultKind.FAIL, nth=1, after=True),
    "stalled before": Fault(FaultKind.STALL, nth=1),
    "stalled after": Fault(FaultKind.STALL, nth=1, after=True),
    "slow before": Fault(FaultKind.DELAY, nth=1, seconds=30.0),
    "slow after": Fault(FaultKind.DELAY, nth=1, seconds=30.0, after=True),
    "duplicated": Fault(FaultKind.DUPLICATE, nth=1),
}


class Rig:
    """A retrying store over a faulty one over memory."""

    def __init__(self, *faults: Fault, policy: RetryPolicy = POLICY) -> None:
        self.clock = VirtualClock()
        effects = in_virtual_time(7, self.clock)
        self.inner = MemoryStore()
        self.faulty = FaultyStore(self.inner, faults, self.clock)
        self.store = RetryingStore(self.faulty, policy, effects)

    @property
    def asked(self) -> Counter[str]:
        """Calls that reached the store, by operation."""
        return Counter(operation for operation, _ in self.faulty.calls)


@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
@pytest.mark.parametrize("operation", OPERATIONS)
async def test_a_single_fault_at_any_call_is_invisible(
    operation: str, fault: Fault, nth: int
) -> None:
    rig = Rig(replace(fault, operation=operation, nth=nth))
    store = rig.store
    for name in ("checkpoints/1", "checkpoints/2"):
        await create_once(store, name, name.encode())
    for name in ("segments/1", "segments/2"):
        await store.put(name, name.encode())
    for name in ("segments/1", "checkpoints/2"):
        assert await store.get(name) == name.encode()
        assert (await store.head(name)).size == len(name)
    assert await names(store, "segments/") == ["segments/1", "segments/2"]
    assert await names(store, "checkpoints/", "checkpoints/1") == ["checkpoints/2"]
    for name in ("segments/1", "checkpoints/1"):
        await store.delete(name)
    assert await names(rig.inner) == ["checkpoints/2", "segments/2"]
    assert rig.asked[operation] >= 2
    assert rig.faulty.stalled == 0
    assert rig.clock.monotonic() <= 31.0
    for each in OPERATIONS:
        counters = getattr(store.request_metrics, each)
        assert counters.attempts == counters.calls + counters.retries + counters.hedges
        assert counters.failures == 0
        assert rig.asked[each] == counters.attempts


async def test_parts_that_are_asked_for_together_count_one_by_one() -> None:
    rig = Rig(replace(FAULTS["refused"], operation="get"))
    await rig.inner.put("tables/a", b"0123456789")
    parts = [ObjectPart("tables/a", start, 2) for start in (0, 2, 8)]
    assert list(await rig.store.get_parts(parts)) == [b"01", b"23", b"89"]
    counters = rig.store.request_metrics.get
    assert (counters.calls, counters.retries, counters.attempts) == (3, 3, 6)
    assert rig.store.request_metrics.bytes_read == 6


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
async def test_an_object_of_another_author_is_never_taken_for_ours(fault: Fault) -> None:
    rig = Rig(*(replace(fault, operation=operation) for operation in ("create", "get")))
    await rig.inner.create("checkpoints/1", b"theirs")
    with pytest.raises(ObjectExistsError, match="checkpoints/1"):
        await create_once(rig.store, "checkpoints/1", b"ours")
    assert await rig.inner.get("checkpoints/1") == b"theirs"


async def test_a_create_once_whose_object_was_deleted_meanwhile_has_lost() -> None:
    class Sweeping(MemoryStore):
        async def create(self, name: str, data: bytes) -> None:
            try:
                await super().create(name, data)
            finally:
                await self.delete(name)

    store = Sweeping()
    await store.put("checkpoints/1", b"theirs")
    with pytest.raises(ObjectExistsError):
        await create_once(store, "checkpoints/1", b"ours")


async def test_a_create_whose_answer_was_lost_reports_that_the_name_is_taken() -> None:
    rig = Rig(Failure("create", after=True))
    with pytest.raises(ObjectExistsError, match="read it back"):
        await rig.store.create("checkpoints/1", b"ours")
    assert await rig.inner.get("checkpoints/1") == b"ours"


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("kind", [FaultKind.FAIL, FaultKind.STALL])
async def test_a_store_that_never_answers_is_given_up_at_the_deadline(
    operation: str, kind: FaultKind
) -> None:
    rig = Rig(Fault(kind, operation))
    with pytest.raises(StoreUnreachableError, match="attempts without an answer") as raised:
        await call(rig.store, operation)
    assert "name" in str(raised.value)
    assert 50.0 <= rig.clock.monotonic() <= 60.001
    counters = getattr(rig.store.request_metrics, operation)
    assert (counters.calls, counters.failures) == (1, 1)
    assert counters.retries >= 4
    assert rig.faulty.stalled == 0


async def test_an_error_that_a_retry_cannot_cure_is_raised_at_once() -> None:
    rig = Rig(Fault(FaultKind.FAIL, "put", error=access_denied))
    with pytest.raises(AccessDeniedError):
        await rig.store.put("name", b"x")
    with pytest.raises(ObjectNotFoundError):
        await rig.store.get("name")
    assert rig.clock.monotonic() == 0.0
    assert rig.asked == {"put": 1, "get": 1}
    metrics = rig.store.request_metrics
    assert (metrics.put.failures, metrics.get.failures) == (1, 0)


@pytest.mark.parametrize("operation", ["put", "get", "head", "delete"])
async def test_a_stalled_call_is_won_by_a_second_attempt(operation: str) -> None:
    rig = Rig(Fault(FaultKind.STALL, operation, nth=1))
    await rig.inner.put("name", b"old")
    await call(rig.store, operation)
    assert rig.clock.monotonic() == pytest.approx(2.0)
    assert rig.faulty.stalled == 0
    counters = getattr(rig.store.request_metrics, operation)
    assert (counters.hedges, counters.hedge_wins, counters.retries) == (1, 1, 0)
    assert list(counters.latency_s) == [rig.clock.monotonic()]


async def test_a_failure_of_one_attempt_leaves_the_other_to_answer() -> None:
    rig = Rig(Fault(FaultKind.DELAY, "get", nth=1, seconds=4.0), Failure("get", nth=2))
    await rig.inner.put("name", b"x")
    assert await rig.store.get("name") == b"x"
    assert rig.clock.monotonic() == 4.0
    assert rig.store.request_metrics.get.retries == 0


async def test_a_create_never_has_two_attempts_under_way() -> None:
    class Watching(MemoryStore):
        under_way = most = attempts = 0

        async def create(self, name: str, data: bytes) -> None:
            self.attempts += 1
            self.under_way += 1
            self.most = max(self.most, self.under_way)
            try:
                await asyncio.Event().wait()
            finally:
                self.under_way -= 1

    clock, inner = VirtualClock(), Watching()
    store = RetryingStore(inner, POLICY, in_virtual_time(0, clock))
    with pytest.raises(StoreUnreachableError):
        await store.create("name", b"x")
    assert (inner.most, inner.under_way) == (1, 0)
    assert inner.attempts > 1


async def test_a_request_is_given_up_after_its_last_attempt_before_the_deadline() -> None:
    policy = RetryPolicy(attempts=3, hedge_after=None, deadline=1e6)
    rig = Rig(Fault(FaultKind.FAIL, "put"), policy=policy)
    with pytest.raises(StoreUnreachableError, match="3 attempts without an answer"):
        await rig.store.put("name", b"x")
    assert rig.asked == {"put": 3}


async def test_a_list_goes_on_behind_the_last_page_that_arrived(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(retry, "_LIST_PAGE", 3)
    rig = Rig(Fault(FaultKind.FAIL, "list", nth=2), Fault(FaultKind.STALL, "list", nth=4))
    stored = [f"segments/{number}" for number in range(9)]
    for name in stored:
        await rig.inner.put(name, b"x")
    assert await names(rig.store, "segments/") == stored
    assert await names(rig.store, "segments/", stored[4]) == stored[5:]


async def test_a_cancelled_call_leaves_nothing_running() -> None:
    rig = Rig(Fault(FaultKind.STALL, "put"))
    call = asyncio.ensure_future(rig.store.put("name", b"x"))
    await rig.clock.advance(3.0)
    assert rig.faulty.stalled == 2
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert rig.faulty.stalled == 0


@pytest.mark.parametrize(
    ("faults", "attempts"),
    [
        ((), [1, 1]),
        ((Failure("put"), Failure("put", nth=2)), [3, 1]),
        ((Fault(FaultKind.STALL, "put", nth=1),), [2, 1]),
    ],
    ids=["answered at once", "refused twice", "stalled: a second attempt beside it"],
)
async def test_attempts_are_counted_per_segment_of_the_log(
    faults: tuple[Fault, ...], attempts: list[int]
) -> None:
    rig = Rig(*faults)
    for name in ("segments/1", "segments/2", "tables/1"):
        await rig.store.put(name, b"x")
    metrics = rig.store.request_metrics
    assert list(metrics.attempts_per_segment) == attempts
    assert metrics.segment_attempts == sum(attempts) == metrics.put.attempts - 1
