"""In-flight data goes where the job's own partitioner sends it, in order, whatever the shape."""

from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog import ForeachSink, IterableSource, Job, Stream
from tidelog.runtime.channels.messages import Batch, KeyedBatch, Watermark
from tidelog.runtime.in_flight.capture import ChannelData, ChannelId
from tidelog.runtime.in_flight.redistribution import redistribute
from tidelog.runtime.subtasks.vertices import Vertex, compile_job
from tidelog.runtime.subtasks.wiring import Buffers, Wiring
from tidelog.state.key_groups import encode_key, key_group, subtask_of

GROUPS = 16


def shape(producers: int, consumers: int, routing: str) -> tuple[list[Vertex], Wiring]:
    job = Job("shape")
    stream = job.source(IterableSource([]), parallelism=producers)
    routed: dict[str, Stream] = {
        "key": stream.key_by(lambda r: r[0]),
        "rebalance": stream.rebalance(),
        "broadcast": stream.broadcast(),
        "forward": stream,
    }
    routed[routing].sink(ForeachSink(lambda _: None), parallelism=consumers)
    vertices = compile_job(job, 1)
    return vertices, Wiring(vertices, GROUPS, Buffers())


def stored(producer: int, consumer: int, records: list[Any], *, at_producer: bool) -> ChannelData:
    channel = ChannelId("sink", 0, producer, consumer, at_producer)
    return ChannelData(channel, [Batch([record]) for record in records])


@given(
    st.tuples(*[st.integers(1, 6)] * 4),
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5), st.booleans()), max_size=60),
    st.sampled_from(["key", "rebalance"]),
)
def test_no_record_is_lost_doubled_or_reordered_by_any_change_of_shape(
    sizes: tuple[int, int, int, int], entries: list[tuple[int, int, bool]], routing: str
) -> None:
    old_producers, old_consumers, producers, consumers = sizes
    held: dict[tuple[int, int, bool], list[Any]] = defaultdict(list)
    for number, (key, producer, behind) in enumerate(entries):
        owner = subtask_of(key_group(encode_key(key), GROUPS), GROUPS, old_consumers)
        held[producer % old_producers, owner, behind].append((key, producer, number))
    parts = [stored(p, c, records, at_producer=b) for (p, c, b), records in held.items()]
    vertices, wiring = shape(producers, consumers, routing)
    subtasks = {"source": old_producers, "sink": old_consumers}
    recovered = redistribute(parts, vertices, wiring, subtasks)

    back = [
        r for data in recovered.values() for m in data if isinstance(m, Batch) for r in m.records
    ]
    assert sorted(back) == sorted((k, p, n) for n, (k, p, _) in enumerate(entries))
    for (vertex, subtask, number), data in recovered.items():
        assert vertex == "sink" and number < producers
        for message in data:
            if routing == "key":
                assert isinstance(message, KeyedBatch)
                key = message.records[0][0]
                assert subtask == subtask_of(key_group(encode_key(key), GROUPS), GROUPS, consumers)
    if routing == "key":
        _assert_keys_in_order(parts, recovered)


def _assert_keys_in_order(parts: list[ChannelData], recovered: Any) -> None:
    """Of each old channel and key: the consumer's records first, then the producer's."""
    expected: dict[Any, list[Any]] = defaultdict(list)
    for part in sorted(parts, key=lambda part: part.channel):
        for message in part.data:
            (record,) = message.records  # type: ignore[union-attr]
            expected[part.channel.producer_subtask, record[0]].append(record)
    found: dict[Any, list[Any]] = defaultdict(list)
    producers = max((part.channel.producer_subtask for part in parts), default=0) + 1
    for data in recovered.values():
        for message in data:
            (record,) = message.records
            found[record[1] % producers, record[0]].append(record)
    for (producer, key), records in expected.items():
        mine = set(records)
        order = [r for stream in found.values() for r in stream if r in mine]
        assert order == records, f"key {key} of producer {producer}"


def test_in_another_shape_watermarks_are_left_to_the_producers() -> None:
    vertices, wiring = shape(2, 2, "rebalance")
    part = ChannelData(ChannelId("sink", 0, 4, 2, at_producer=False), [Watermark(5), Batch([1])])
    recovered = redistribute([part], vertices, wiring, {"source": 5, "sink": 3})
    assert recovered == {("sink", 0, 0): [Batch([1])]}


def test_data_of_an_exchange_that_is_none_now_goes_where_its_sender_sends() -> None:
    """All through the first channel: a later checkpoint has it before what came later."""
    vertices, wiring = shape(3, 2, "forward")
    parts = [stored(sender, 0, [sender, 10 + sender], at_producer=False) for sender in range(4)]
    recovered = redistribute(parts, vertices, wiring, {"source": 4, "sink": 5})
    assert recovered == {
        ("sink", 0, 0): [Batch([n]) for n in (0, 10, 2, 12, 3, 13)],
        ("sink", 1, 0): [Batch([1]), Batch([11])],
    }


@pytest.mark.parametrize("routing", ["rebalance", "forward"])
def test_data_stays_with_its_consumer_where_only_the_producers_are_others(routing: str) -> None:
    """One beside it may have finished."""
    vertices, wiring = shape(3, 2, routing)
    part = stored(4, 1, [1, 2, 3], at_producer=True)
    recovered = redistribute([part], vertices, wiring, {"source": 5, "sink": 2})
    assert recovered == {("sink", 1, 0): [Batch([1]), Batch([2]), Batch([3])]}
