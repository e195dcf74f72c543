"""What a user has got wrong is said with the operator and the key that it is in.

What the graph shows is said when the job is built.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.pipelines import Outside, run
from tidelog import (
    Count,
    IterableSource,
    Job,
    KeyedStream,
    Session,
    Sliding,
    StatefulProcessor,
    Stream,
    Tumbling,
)
from tidelog.errors import ConfigError, StateSchemaError
from tidelog.storage.memory import MemoryStore


class Reminder(StatefulProcessor):
    def init(self, handle: Any) -> None:
        self.handle = handle
        self.count = handle.getValueState("count", "count int")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        for time in rows:
            self.handle.registerTimer(time)
        return iter(())

    def handleExpiredTimer(self, key: Any, timerValues: Any, info: Any) -> Iterator[Any]:
        self.count.update(("many",))
        return iter(())


def numbers(job: Job, name: str = "numbers") -> Stream:
    return job.source(IterableSource([5, -900, -950]), name=name)


class Late(Reminder):
    def handleExpiredTimer(self, key: Any, timerValues: Any, info: Any) -> Iterator[Any]:
        self.handle.registerTimer(-950)
        return iter(())


def test_a_timer_in_the_past_names_operator_and_key() -> None:
    job = Job("timers")
    # The first portions bring the watermark up, so timers fire before the data ends.
    timed = job.source(IterableSource([*range(20_000)])).event_time(lambda n: n)
    keyed = timed.key_by(lambda n: ("ann", n % 2))
    keyed.transform_with_state(Late, time_mode="event", name="reminders").sink(Outside())
    with pytest.raises(
        ConfigError,
        match=r"^operator 'reminders': key \('ann', \d\): registerTimer\(-950\); "
        r"expected a time after that of the timer that fires, \d+",
    ):
        run(job, MemoryStore())


def test_a_value_of_another_type_names_operator_and_key() -> None:
    job = Job("timers")
    keyed = numbers(job).event_time(lambda n: n).key_by(lambda n: "bob")
    keyed.transform_with_state(Reminder, time_mode="event", name="reminders").sink(Outside())
    with pytest.raises(StateSchemaError, match=r"^operator 'reminders': key 'bob': .*'count'"):
        run(job, MemoryStore())


def joined(job: Job, stream: KeyedStream) -> Stream:
    others = numbers(job, "others").event_time(lambda n: n)
    return others.key_by(lambda n: n).join(stream, (0, 0), name="it")


BY_EVENT_TIME: dict[str, Callable[[Job, KeyedStream], Any]] = {
    "a tumbling window": lambda _, stream: stream.window(Tumbling(10), name="it").count(),
    "sessions": lambda _, stream: stream.window(Session(10), name="it").count(),
    "windows of records": lambda _, stream: stream.window(Sliding(10, 5), name="it").records(print),
    "a join": joined,
    "an enrichment": lambda job, stream: stream.enrich(
        numbers(job, "table").event_time(lambda n: n).key_by(lambda n: n), print, name="it"
    ),
    "a processor": lambda _, stream: stream.transform_with_state(
        Reminder, time_mode="event", name="it"
    ),
}


@pytest.mark.parametrize("build", BY_EVENT_TIME.values(), ids=BY_EVENT_TIME.keys())
def test_a_stream_without_event_time_is_refused_when_the_job_is_built(
    build: Callable[[Job, KeyedStream], Any],
) -> None:
    job = Job("times")
    with pytest.raises(
        ConfigError, match=r"^operator 'it'; expected event time.*none in the stream of 'halves'"
    ):
        build(job, numbers(job).map(lambda n: n // 2, name="halves").key_by(lambda n: n))


def test_a_part_of_a_union_without_event_time_is_refused_when_the_job_is_built() -> None:
    job = Job("times")
    both = numbers(job).event_time(lambda n: n).union(numbers(job, "others"))
    with pytest.raises(ConfigError, match=r"^operator 'window'; .*none in the stream of 'others'"):
        both.key_by(lambda n: n).window(Tumbling(10)).count()


def test_records_that_lose_their_event_time_name_the_operator() -> None:
    job = Job("times")
    both = numbers(job).event_time(lambda n: n).union(numbers(job, "others"))
    keyed = both.map(lambda n: n).key_by(lambda n: n)
    keyed.window(Tumbling(10), name="hourly").count().sink(Outside())
    with pytest.raises(ConfigError, match=r"^operator 'hourly': a record; expected event time"):
        run(job, MemoryStore())


def test_count_windows_need_no_event_time() -> None:
    job, sink = Job("counts"), Outside()
    numbers(job).key_by(lambda n: "all").window(Count(3)).count().sink(sink)
    run(job, MemoryStore())
    assert sink.records == [("all", 3)]


def test_the_other_stream_of_a_join_names_the_operator() -> None:
    job = Job("join")
    keyed = numbers(job).event_time(lambda n: n).key_by(lambda n: n)
    with pytest.raises(ConfigError, match="other stream of operator 'pairs'; expected a stream af"):
        keyed.join(numbers(job, "others"), (0, 0), name="pairs")  # type: ignore[arg-type]
