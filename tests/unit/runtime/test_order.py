"""What one subtask emits arrives in its order, whatever the parallelism of what follows."""

from collections import defaultdict
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

import pytest

from tests.support.clock import VirtualClock
from tests.support.depth import one_by_one
from tests.support.pipelines import Outside
from tests.support.pressure import numbered, pressed, run_pressed, slowly
from tidelog import Job, StatefulProcessor, StatefulProcessorHandle, Stream, TimerValues
from tidelog.storage.memory import MemoryStore

RULES = 40


class Arrivals(StatefulProcessor):
    """Numbers the records of a key as they come."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.count = handle.getValueState("count", "n long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: TimerValues) -> Any:
        (count,) = self.count.get() or (0,)
        for _, split, number in rows:
            yield key[0], split, number, count
            count += 1
        self.count.update((count,))


def arrivals(stream: Stream) -> Stream:
    return stream.key_by(lambda r: r[0]).transform_with_state(Arrivals)


def run_job(build: Callable[[Job, VirtualClock], None], parallelism: int) -> None:
    job, clock = Job("order"), VirtualClock()
    build(job, clock)
    run_pressed(job, MemoryStore("memory://order"), pressed(parallelism=parallelism), clock)


def assert_in_order_of_arrival(records: list[tuple[str, int, int, int]]) -> None:
    """Records with the same split and key arrived in the order in which they were read."""
    numbers = defaultdict(list)
    for key, split, number, _ in sorted(records, key=lambda record: record[3]):
        numbers[key, split].append(number)
    assert records and all(found == sorted(found) for found in numbers.values()), numbers


@one_by_one(parallelism=[2, 4], rules_parallelism=[1, 3], merged=[True, False])
def test_rules_arrive_at_every_subtask_in_the_order_of_their_source(
    parallelism: int, rules_parallelism: int, merged: bool
) -> None:
    known_of: dict[int, MutableMapping[Any, Any]] = {}
    told: dict[int, list[Any]] = defaultdict(list)

    def on_rule(rule: Any, known: MutableMapping[Any, Any]) -> None:
        known_of[id(known)] = known
        told[id(known)].append(rule)

    def on_record(record: Any, known: Mapping[Any, Any]) -> list[Any]:
        return [record]

    def build(job: Job, clock: VirtualClock) -> None:
        rules = job.source(numbered(3, RULES), name="rules", parallelism=rules_parallelism)
        if merged:
            rules = rules.union(job.source(numbered(1, 0), name="none"))
        orders = slowly(job.source(numbered(), name="orders").rebalance(), clock, 0.05)
        orders.with_broadcast(rules, on_rule=on_rule, on_record=on_record).sink(Outside())

    run_job(build, parallelism)
    assert len(told) == parallelism
    for rules in told.values():
        numbers = defaultdict(list)
        for _, split, number in rules:
            numbers[split].append(number)
        assert numbers == {split: list(range(RULES)) for split in range(3)}


def continued(stream: Stream, other: Stream) -> Stream:
    return stream.map(lambda r: r).filter(lambda r: True)


def with_times(stream: Stream, other: Stream) -> Stream:
    return stream.event_time(lambda r: r[2])


def with_others(stream: Stream, other: Stream) -> Stream:
    return stream.union(other).map(lambda r: r)


def with_rules(stream: Stream, other: Stream) -> Stream:
    return stream.with_broadcast(
        other, on_rule=lambda rule, known: None, on_record=lambda record, known: [record]
    )


@one_by_one(
    stage=[continued, with_times, with_others, with_rules],
    shape={"1-4": (1, 4), "4-3": (4, 3), "2-5": (2, 5)},
)
def test_records_of_a_split_and_key_stay_in_order_between_their_source_and_keyed_state(
    stage: Callable[[Stream, Stream], Stream], shape: tuple[int, int]
) -> None:
    sources, parallelism = shape
    sink = Outside()

    def build(job: Job, clock: VirtualClock) -> None:
        # Buffers of one record, and more to do for some keys than for others.
        read = job.source(numbered(portion=1), parallelism=sources)
        other = job.source(numbered(1, 0), name="other")
        busy = stage(read, other).map(lambda r: clock.spend(0.01 * len(r[0]) * r[2]) or r)
        arrivals(busy).sink(sink)

    run_job(build, parallelism)
    assert sorted(r[:3] for r in sink.records) == sorted(numbered().records)
    assert_in_order_of_arrival(sink.records)


@pytest.mark.parametrize(("parallelism", "sinks"), [(2, 3), (2, 5), (3, 2), (3, 1), (1, 4)])
def test_what_a_key_emits_goes_to_one_subtask_of_a_sink(parallelism: int, sinks: int) -> None:
    """Two of them would commit a newer and an older value of a key in any order."""
    sink = Outside()

    def build(job: Job, clock: VirtualClock) -> None:
        arrivals(job.source(numbered())).sink(sink, parallelism=sinks)

    run_job(build, parallelism)
    of_key = defaultdict(set)
    for token, records in sink.committed.items():
        for record in records:
            of_key[record[0]].add(token.partition(b"/")[0])
    assert len(of_key) == 5 and all(len(subtasks) == 1 for subtasks in of_key.values())
    assert_in_order_of_arrival(sink.records)


def test_a_stream_that_is_rebalanced_uses_all_subtasks_of_the_job() -> None:
    sink = Outside()

    def build(job: Job, clock: VirtualClock) -> None:
        job.source(numbered(), parallelism=1).rebalance().map(lambda r: r).sink(sink)

    run_job(build, 4)
    assert {token.partition(b"/")[0] for token in sink.committed} == {
        b"sink-%d" % subtask for subtask in range(4)
    }
