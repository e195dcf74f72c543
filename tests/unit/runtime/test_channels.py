"""Channels deliver in order, push back when full, and hold still while blocked."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.errors import UserFunctionError
from tidelog.runtime.channel import Gate
from tidelog.runtime.messages import Batch, KeyedBatch
from tidelog.runtime.partition import Broadcast, ByKey, Forward, Rebalance
from tidelog.state.key_groups import decode_key, range_of


def scenario(steps: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(steps())


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_channels_take_turns_and_each_stays_in_order() -> None:
    async def steps() -> None:
        gate = Gate(2, 10)
        for n in range(3):
            await gate.put(0, Batch([f"a{n}"]))
        await gate.put(1, Batch(["b0"]))
        received = [await gate.get() for _ in range(4)]
        assert [m.records[0] for _, m in received] == ["a0", "b0", "a1", "a2"]  # type: ignore

    scenario(steps)


def test_a_full_channel_makes_its_sender_wait_and_no_other() -> None:
    async def steps() -> None:
        gate = Gate(2, 2)
        await gate.put(0, Batch([1]))
        await gate.put(0, Batch([2]))
        waiting = asyncio.ensure_future(gate.put(0, Batch([3])))
        await gate.put(1, Batch([4]))
        await turns()
        assert not waiting.done() and gate.queued == 3
        await gate.get()
        await turns()
        assert waiting.done()

    scenario(steps)


def test_a_blocked_channel_delivers_nothing_until_unblocked() -> None:
    async def steps() -> None:
        gate = Gate(2, 10)
        await gate.put(0, Batch(["blocked"]))
        gate.block(0)
        getting = asyncio.ensure_future(gate.get())
        await turns()
        assert not getting.done()
        await gate.put(1, Batch(["free"]))
        assert (await getting)[0] == 1  # type: ignore[index]
        getting = asyncio.ensure_future(gate.get())
        await turns()
        assert not getting.done()
        gate.unblock()
        assert (await getting)[0] == 0  # type: ignore[index]

    scenario(steps)


def test_a_poke_passes_once_and_jumps_the_queue() -> None:
    async def steps() -> None:
        gate = Gate(1, 10)
        await gate.put(0, Batch([1]))
        gate.poke()
        gate.poke()
        assert await gate.get() is None
        assert await gate.get() is not None
        gate.block(0)
        waiting = asyncio.ensure_future(gate.get())
        await turns()
        gate.poke()
        assert await waiting is None

    scenario(steps)


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
