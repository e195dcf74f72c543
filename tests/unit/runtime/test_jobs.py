"""Whole jobs without trouble: every routing, every parallelism, both modes."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.harness import retained_objects
from tests.support.pipelines import Outside, Portions, config, effects, run, word_count, words
from tidelog import Job, StatefulProcessor, StatefulProcessorHandle, TimerValues
from tidelog.errors import UserFunctionError
from tidelog.storage.memory import MemoryStore


def store() -> MemoryStore:
    return MemoryStore("memory://job")


async def check_census(objects: MemoryStore) -> None:
    names, needed = await retained_objects(objects, effects())
    assert set(objects._objects) == names | needed


@pytest.mark.parametrize("parallelism", [1, 2, 3, 4])
@pytest.mark.parametrize("changelog", [True, False])
@pytest.mark.parametrize("mode", ["exactly-once", "at-least-once"])
def test_a_keyed_job_counts_every_record_once(parallelism: int, changelog: bool, mode: Any) -> None:
    source, sink, objects = words(3), Outside(), store()
    settings = config(parallelism=parallelism, changelog=changelog, mode=mode)
    result = run(word_count(source, sink), objects, settings)
    assert sorted(sink.records) == sorted(Counter(source.records).items())
    assert result.checkpoints >= 3, "checkpoints lay between the records"
    assert set(sink.commits.values()) == {1}
    assert sink.prepared == {}
    asyncio.run(check_census(objects))


def test_a_completed_job_started_again_does_nothing() -> None:
    source, sink, objects = words(), Outside(), store()
    first = run(word_count(source, sink), objects)
    records = sorted(sink.records)
    again = run(word_count(source, sink), objects)
    assert not first.already_complete and again.already_complete
    assert again.restored_slot == first.last_slot
    assert sorted(sink.records) == records


def united(job: Job, source: Portions, sink: Outside) -> None:
    job.source(source, name="left").union(job.source(source, name="right")).sink(sink)


def broadcast(job: Job, source: Portions, sink: Outside) -> None:
    job.source(source).broadcast().map(lambda w: w).sink(sink)


def rebalanced(job: Job, source: Portions, sink: Outside) -> None:
    job.source(source).rebalance().map(lambda w: w).sink(sink)


def uneven(job: Job, source: Portions, sink: Outside) -> None:
    """Streams of different parallelism meet."""
    stream = job.source(source, parallelism=3).filter(lambda w: w != "w0")
    zeros = job.source(source, name="zeros", parallelism=1).filter(lambda w: w == "w0")
    stream.union(zeros).flat_map(lambda w: [w, w]).sink(sink, parallelism=1)


@pytest.mark.parametrize(
    ("build", "copies", "writers"),
    [(united, 2, 4), (broadcast, 4, 4), (rebalanced, 1, 4), (uneven, 2, 1)],
)
def test_every_routing_brings_what_it_says(
    build: Callable[[Job, Portions, Outside], None], copies: int, writers: int
) -> None:
    source, sink, job = words(4, 20), Outside(), Job("routed")
    build(job, source, sink)
    run(job, store(), config(parallelism=4))
    assert Counter(sink.records) == {w: copies * n for w, n in Counter(source.records).items()}
    assert len({transaction.split(b"/")[0] for transaction in sink.committed}) == writers


class Sessions(StatefulProcessor):
    """Counts rows per key, emits the count 5 ms after the last row."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.count = handle.getValueState("count", "n int, due long")

    def handleInputRows(
        self, key: tuple[Any, ...], rows: Iterator[Any], timerValues: TimerValues
    ) -> Iterator[Any]:
        count, due = self.count.get() or (0, None)
        for row in rows:
            count += 1
            if due is not None:
                self.handle.deleteTimer(due)
            due = row[1] + 5
            self.handle.registerTimer(due)
        self.count.update((count, due))
        return iter(())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Any:
        count, due = self.count.get() or (0, 0)
        assert due == expiredTimerInfo.getExpiryTimeInMs()
        self.count.clear()
        yield key[0], count, due


EVENTS = [(f"k{n % 3}", n * 4 - (n % 2) * 3) for n in range(40)] + [("k1", 3), ("k2", 500)]


def sessions(sink: Outside, breaks: bool = False) -> Job:
    job = Job("sessions")
    stream = job.source(Portions({"only": EVENTS}))
    if breaks:
        stream = stream.map(lambda e: 1 // 0 if e[1] > 120 else e)
    else:
        stream = stream.map(lambda e: e)
    timed = stream.event_time(lambda e: e[1], max_delay_ms=2).key_by(lambda e: e[0])
    timed.transform_with_state(Sessions, time_mode="event").sink(sink)
    return job


def test_the_watermark_of_a_finished_input_survives_a_restart() -> None:
    """One input ends early; after a crash the other one alone must still move event time."""
    fired: list[Any] = []

    def job(breaks_at: int) -> Job:
        job = Job("two-inputs")
        early = Portions({"early": [("a", 1)]})
        late = Portions({"late": [("b", n) for n in range(0, 200, 4)]}, portion=2)

        def check(event: Any) -> Any:
            if event[1] >= breaks_at:
                raise ValueError("broken")
            return event

        def timed(source: Portions, name: str) -> Any:
            stream = job.source(source, name=name, parallelism=1).map(check, name=f"{name}-check")
            return stream.event_time(lambda e: e[1], name=f"{name}-time")

        class Watch(Sessions):
            def handleInputRows(self, key: Any, rows: Any, timerValues: TimerValues) -> Any:
                for row in rows:
                    fired.append((row[1], timerValues.getCurrentWatermarkInMs()))
                return iter(())

        both = timed(early, "early").union(timed(late, "late"))
        both.key_by(lambda e: e[0]).transform_with_state(Watch, time_mode="event").sink(Outside())
        return job

    objects, settings = store(), config(parallelism=1)
    with pytest.raises(UserFunctionError):
        run(job(100), objects, settings)
    fired.clear()
    run(job(1000), objects, settings, seed=2)
    assert min(time for time, _ in fired) > 0, "it resumed, it did not start anew"
    assert all(0 <= watermark < time for time, watermark in fired[2:])
