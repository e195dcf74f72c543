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
