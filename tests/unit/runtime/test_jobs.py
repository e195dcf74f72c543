"""Whole jobs without trouble: every routing, every parallelism, both modes; what one subtask emits
arrives in its order."""

import asyncio
import math
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any

import pytest

from tests.faults.counting import broken_off, counting, settings
from tests.support.clock import VirtualClock
from tests.support.depth import in_pairs, one_by_one
from tests.support.faults import Fault, FaultKind, FaultyStore
from tests.support.harness import assert_nothing_is_left_over
from tests.support.jobs import store_of
from tests.support.pipelines import Outside, Portions, config, effects, run, word_count, words
from tests.support.pressure import numbered, numbering, pressed, run_pressed, slowly
from tidelog import (
    CheckpointConfig,
    ForeachSink,
    Job,
    JobRunner,
    MaterializeConfig,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)
from tidelog.errors import UserFunctionError
from tidelog.storage import object_names
from tidelog.storage.memory import MemoryStore


@in_pairs(parallelism=[1, 2, 3, 4], changelog=[True, False], mode=["exactly-once", "at-least-once"])
def test_a_keyed_job_counts_every_record_once(parallelism: int, changelog: bool, mode: Any) -> None:
    source, sink, objects = words(3), Outside(), MemoryStore()
    settings = config(parallelism=parallelism, changelog=changelog, mode=mode)
    result = run(word_count(source, sink), objects, settings)
    assert sorted(sink.records) == sorted(Counter(source.records).items())
    assert result.checkpoints >= 3, "checkpoints lay between the records"
    assert set(sink.commits.values()) == {1}
    assert sink.prepared == {}
    assert_nothing_is_left_over(objects)


def test_with_infinite_intervals_the_end_of_the_job_is_its_only_checkpoint() -> None:
    objects, never = MemoryStore(), math.inf
    tables = MaterializeConfig(interval=never, replay_target=1e-6, replay_share=0.0)
    settings = config(checkpoint=CheckpointConfig(interval=never), materialize=tables)
    assert run(word_count(words(), Outside()), objects, settings).checkpoints == 1
    assert any(name.startswith(object_names.MATERIALIZATIONS) for name in objects._objects)


def test_a_stream_may_branch_and_meet_again_many_times() -> None:
    """Once for each path through the job would be 2 ** 30 times."""
    source, sink, job = words(1), Outside(), Job("steps")
    stream = job.source(source)
    for _ in range(30):
        some = stream.filter(lambda word: word < "w3").map(str)
        stream = some.union(stream.filter(lambda word: word >= "w3"))
    stream.sink(sink)
    run(job, MemoryStore(), config(parallelism=1))
    assert Counter(sink.records) == Counter(source.records)


def test_a_stream_may_have_more_operators_in_a_row_than_the_interpreter_has_frames() -> None:
    source, sink, job = words(1), Outside(), Job("steps")
    stream = job.source(source)
    for _ in range(sys.getrecursionlimit()):
        stream = stream.map(str)
    stream.sink(sink)
    run(job, MemoryStore(), config(parallelism=1))
    assert Counter(sink.records) == Counter(source.records)


def test_a_restart_waits_for_its_store_ten_times_one_after_the_other() -> None:
    """Two to see what is there, three to take over, one for checkpoints, one for what they name,
    one for tables and log, one to see that nobody was faster, one to remove what does not count.
    """
    chosen, world = settings(retain=2), effects(2)
    objects = store_of(broken_off(chosen))
    store = FaultyStore(objects, [Fault(FaultKind.DELAY, seconds=1.0)], world.clock)
    runner = JobRunner(counting(Outside()), store, chosen, world)
    at: list[float] = []
    began = world.clock.monotonic()
    asyncio.run(runner.run(lambda: at.append(world.clock.monotonic())))
    assert at[0] - began <= 10.5


def test_a_completed_job_started_again_does_nothing() -> None:
    source, sink, objects = words(), Outside(), MemoryStore()
    first = run(word_count(source, sink), objects)
    records = sorted(sink.records)
    again = run(word_count(source, sink), objects)
    assert not first.nothing_new and again.nothing_new
    assert (again.restored_checkpoint, again.checkpoints) == (first.last_checkpoint, 0)
    assert sorted(sink.records) == records


def united(job: Job, source: Portions, sink: Outside) -> None:
    job.source(source, name="left").union(job.source(source, name="right")).sink(sink)


def uneven(job: Job, source: Portions, sink: Outside) -> None:
    """Streams of different parallelism meet."""
    stream = job.source(source, parallelism=3).filter(lambda w: w != "w0")
    zeros = job.source(source, name="zeros", parallelism=1).filter(lambda w: w == "w0")
    stream.union(zeros).flat_map(lambda w: [w, w]).sink(sink, parallelism=1)


@pytest.mark.parametrize(
    ("build", "copies", "writers"),
    [
        (united, 2, 4),
        (lambda job, *ends: job.source(ends[0]).broadcast().map(str).sink(ends[1]), 4, 4),
        (lambda job, *ends: job.source(ends[0]).rebalance().map(str).sink(ends[1]), 1, 4),
        (uneven, 2, 1),
    ],
    ids=["united", "broadcast", "rebalanced", "uneven"],
)
def test_every_routing_brings_what_it_says(
    build: Callable[[Job, Portions, Outside], None], copies: int, writers: int
) -> None:
    source, sink, job = words(4, 20), Outside(), Job("routed")
    build(job, source, sink)
    run(job, MemoryStore(), config(parallelism=4))
    assert Counter(sink.records) == {w: copies * n for w, n in Counter(source.records).items()}
    assert len({transaction.split(b"/")[0] for transaction in sink.committed}) == writers


class Watching(StatefulProcessor):
    """Emits the time of every row, and the watermark that it meets."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Nothing to keep."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: TimerValues) -> Iterator[Any]:
        return ((row[1], timerValues.getCurrentWatermarkInMs()) for row in rows)


def test_the_watermark_of_a_finished_input_survives_a_restart() -> None:
    """One input ends early; after a crash the other one alone must still move event time."""

    def run_until(breaks_at: int) -> list[Any]:
        job, seen = Job("two-inputs"), list[Any]()
        early = Portions({"early": [("a", 1)]})
        late = Portions({"late": [("b", n) for n in range(0, 200, 4)]}, portion=2)
        streams = [
            job.source(source, name=name, parallelism=1)
            .map(lambda e: e if e[1] < breaks_at else 1 // 0, name=f"{name}-check")
            .event_time(lambda e: e[1], name=f"{name}-time")
            for name, source in (("early", early), ("late", late))
        ]
        keyed = streams[0].union(streams[1]).key_by(lambda e: e[0])
        watched = keyed.transform_with_state(Watching, time_mode="event")
        watched.sink(ForeachSink(seen.append))
        run(job, objects, config(parallelism=1))
        return seen

    objects = MemoryStore()
    with pytest.raises(UserFunctionError):
        run_until(100)
    seen = run_until(1000)
    assert min(time for time, _ in seen) > 0, "it resumed, it did not start anew"
    assert all(0 <= watermark < time for time, watermark in seen[2:])


RULES = 40


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

    def build(job: Job, clock: VirtualClock) -> None:
        rules = job.source(numbered(3, RULES), name="rules", parallelism=rules_parallelism)
        if merged:
            rules = rules.union(job.source(numbered(1, 0), name="none"))
        orders = slowly(job.source(numbered(), name="orders").rebalance(), clock, 0.05)
        ruled = orders.with_broadcast(rules, on_rule=on_rule, on_record=lambda r, _: [r])
        ruled.sink(Outside())

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
        numbering(job.source(numbered())).sink(sink, parallelism=sinks)

    run_job(build, parallelism)
    of_key = defaultdict(set)
    for token, records in sink.committed.items():
        for record in records:
            of_key[record[0]].add(token.partition(b"/")[0])
    assert len(of_key) == 5 and all(len(subtasks) == 1 for subtasks in of_key.values())
    assert_in_order_of_arrival(sink.records)
