"""Channels deliver in order, push back when full, and hold still while blocked."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.errors import UserFunctionError
from tidelog.ids import CheckpointId
from tidelog.runtime.channels.channel import BufferPool
from tidelog.runtime.channels.gate import Announced, Gate
from tidelog.runtime.channels.messages import Barrier, Batch, KeyedBatch, Watermark
from tidelog.runtime.channels.partition import Broadcast, ByKey, Forward, Rebalance
from tidelog.state.key_groups import decode_key, range_of


def in_a_loop(steps: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """A test whose steps are taken in an event loop."""

    @wraps(steps)
    def test() -> None:
        asyncio.run(steps())

    return test


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def a_gate(channels: int, buffers: int, *, pool: int = 100, overdraft: int = 5) -> Gate:
    """Each channel from a producer of its own, which has no other target."""
    return Gate([BufferPool(1, pool, overdraft) for _ in range(channels)], buffers)


async def data(gate: Gate) -> list[Any]:
    received = await gate.get()
    assert isinstance(received, tuple) and isinstance(received[1], Batch)
    return received[1].records


@in_a_loop
async def test_channels_take_turns_and_each_stays_in_order() -> None:
    gate = a_gate(2, 10)
    for n in range(3):
        gate.channels[0].send(Batch([f"a{n}"]))
    gate.channels[1].send(Batch(["b0"]))
    assert [await data(gate) for _ in range(4)] == [["a0"], ["b0"], ["a1"], ["a2"]]


@in_a_loop
async def test_what_a_consumer_has_no_room_for_waits_at_its_producer_in_order() -> None:
    pool = BufferPool(1, 3, overdraft=1)
    gate = Gate([pool], 1)
    for n in range(4):
        assert pool.available and not pool.exhausted
        gate.channels[0].send(Batch([n]))
    assert pool.used == 3 and not pool.available and not pool.exhausted
    gate.channels[0].send(Batch([4]))
    assert pool.exhausted
    assert [await data(gate) for _ in range(5)] == [[0], [1], [2], [3], [4]]
    assert pool.used == 0 and pool.available


@in_a_loop
async def test_a_producer_hears_once_when_there_is_room_for_every_target_again() -> None:
    heard = []
    pool = BufferPool(2, 2, overdraft=5)
    pool.notify(lambda: heard.append(pool.used))
    gate = Gate([pool], 1)
    for n in range(4):
        gate.channels[0].send(Batch([n]))
    for _ in range(4):
        await gate.get()
    assert heard == [0]


@in_a_loop
async def test_events_need_no_room_and_keep_their_place() -> None:
    pool = BufferPool(1, 1, overdraft=0)
    gate = Gate([pool], 1)
    gate.channels[0].send(Watermark(1))
    gate.channels[0].send(Batch(["first"]))
    gate.channels[0].send(Watermark(2))
    gate.channels[0].send(Batch(["second"]))
    gate.channels[0].send(Watermark(3))
    assert pool.used == 1
    received = [(await gate.get())[1] for _ in range(5)]  # type: ignore[index]
    first, second = Batch(["first"]), Batch(["second"])
    assert received == [Watermark(1), first, Watermark(2), second, Watermark(3)]


@in_a_loop
async def test_a_blocked_channel_delivers_nothing_until_unblocked() -> None:
    gate = a_gate(2, 10)
    gate.channels[0].send(Batch(["blocked"]))
    gate.block(0)
    getting = asyncio.ensure_future(gate.get())
    await turns()
    assert not getting.done()
    gate.channels[1].send(Batch(["free"]))
    assert (await getting)[0] == 1  # type: ignore[index]
    getting = asyncio.ensure_future(gate.get())
    await turns()
    assert not getting.done()
    gate.unblock()
    assert (await getting)[0] == 0  # type: ignore[index]


@in_a_loop
async def test_without_room_for_output_barriers_are_delivered_and_records_are_not() -> None:
    gate, room = a_gate(2, 10), [False]
    gate.deliver_while(lambda: room[0])
    gate.channels[0].send(Batch(["waits"]))
    gate.channels[1].send(Barrier(CheckpointId(1), 0.0))
    received = await gate.get()
    assert isinstance(received, tuple) and isinstance(received[1], Barrier)
    getting = asyncio.ensure_future(gate.get())
    await turns()
    assert not getting.done()
    room[0] = True
    gate.wake()
    assert (await getting)[1] == Batch(["waits"])  # type: ignore[index]


@in_a_loop
async def test_a_barrier_that_may_overtake_is_announced_at_once_and_stays_in_its_place() -> None:
    gate = a_gate(1, 10)
    barrier = Barrier(CheckpointId(1), 0.0, order="may-switch")
    gate.channels[0].send(Batch([1]))
    gate.channels[0].send(barrier)
    assert await gate.get() == Announced(barrier)
    assert await gate.get() == (0, Batch([1]))
    assert await gate.get() == (0, barrier)


@in_a_loop
async def test_restored_data_comes_before_anything_new_of_any_channel() -> None:
    gate = a_gate(2, 1)
    gate.channels[1].recover([Batch(["old 1"]), Watermark(5), Batch(["old 2"])])
    gate.recovered()
    gate.channels[0].send(Batch(["new"]))
    gate.channels[1].send(Batch(["later"]))
    received = [await gate.get() for _ in range(5)]
    assert [channel for channel, _ in received][:3] == [1, 1, 1]  # type: ignore
    assert received[2] == (1, Batch(["old 2"]))
    assert sorted(m.records[0] for _, m in received[3:]) == ["later", "new"]  # type: ignore


@in_a_loop
async def test_a_poke_passes_once_and_jumps_the_queue() -> None:
    gate = a_gate(1, 10)
    gate.channels[0].send(Batch([1]))
    gate.poke()
    gate.poke()
    assert await gate.get() is None
    assert await gate.get() is not None
    gate.block(0)
    waiting = asyncio.ensure_future(gate.get())
    await turns()
    gate.poke()
    assert await waiting is None


@given(
    st.lists(st.one_of(st.text(), st.integers(0, 2**60), st.tuples(st.text(), st.integers(0, 9)))),
    st.integers(1, 8),
    st.booleans(),
)
def test_a_keyed_record_goes_to_the_owner_of_its_key_group(
    records: list[Any], targets: int, timed: bool
) -> None:
    times = list(range(len(records))) if timed else None
    routed = list(ByKey(lambda r: r, targets, 8).route(Batch(records, times)))
    delivered = []
    for target, part in routed:
        assert isinstance(part, KeyedBatch)
        owned = range_of(target, 8, targets)
        for at, record in enumerate(part.records):
            assert int.from_bytes(part.groups[at], "big") in owned
            assert decode_key(part.keys[at]) == record
            assert part.times is None or records[part.times[at]] == record
        delivered += part.records
    assert sorted(delivered, key=repr) == sorted(records, key=repr)


def test_records_of_a_key_keep_their_order() -> None:
    batch = Batch([("a", n) for n in range(50)])
    ((_, part),) = list(ByKey(lambda r: r[0], 4, 8).route(batch))
    assert part.records == batch.records


def test_a_key_that_cannot_be_stored_is_blamed_on_the_key_function() -> None:
    with pytest.raises(UserFunctionError, match="key_by"):
        list(ByKey(lambda r: object(), 2, 8).route(Batch([1])))


def test_the_other_routings_send_where_they_say() -> None:
    batch = Batch([1, 2])
    assert list(Forward(3).route(batch)) == [(3, batch)]
    assert list(Broadcast(2).route(batch)) == [(0, batch), (1, batch)]
    rebalance = Rebalance(3, 4)
    assert [next(rebalance.route(batch))[0] for _ in range(4)] == [1, 2, 0, 1]
