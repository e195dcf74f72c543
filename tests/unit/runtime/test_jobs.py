"""Whole jobs without trouble: every routing, every parallelism, both modes."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.harness import assert_nothing_is_left_over
from tests.support.pipelines import Outside, Portions, config, run, word_count, words
from tidelog import Callback, Job, StatefulProcessor, StatefulProcessorHandle, TimerValues
from tidelog.errors import UserFunctionError
from tidelog.storage.memory import MemoryStore


@pytest.mark.parametrize("parallelism", [1, 2, 3, 4])
@pytest.mark.parametrize("changelog", [True, False])
@pytest.mark.parametrize("mode", ["exactly-once", "at-least-once"])
def test_a_keyed_job_counts_every_record_once(parallelism: int, changelog: bool, mode: Any) -> None:
    source, sink, objects = words(3), Outside(), MemoryStore()
    settings = config(parallelism=parallelism, changelog=changelog, mode=mode)
    result = run(word_count(source, sink), objects, settings)
    assert sorted(sink.records) == sorted(Counter(source.records).items())
    assert result.checkpoints >= 3, "checkpoints lay between the records"
    assert set(sink.commits.values()) == {1}
    assert sink.prepared == {}
    assert_nothing_is_left_over(objects)


def test_a_completed_job_started_again_does_nothing() -> None:
    source, sink, objects = words(), Outside(), MemoryStore()
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
        watched.sink(Callback(seen.append))
        run(job, objects, config(parallelism=1))
        return seen

    objects = MemoryStore()
    with pytest.raises(UserFunctionError):
        run_until(100)
    seen = run_until(1000)
    assert min(time for time, _ in seen) > 0, "it resumed, it did not start anew"
    assert all(0 <= watermark < time for time, watermark in seen[2:])
