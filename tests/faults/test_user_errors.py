"""A user's function that raises stops the job under its name; mended, the job resumes exactly."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from functools import cache
from typing import Any

import pytest

from tests.faults.counting import EXPECTED, POISON, WORDS, settings, start
from tests.support.jobs import contents, store_of
from tests.support.pipelines import Outside, Portions, Within
from tidelog.connectors.program import ForeachSink
from tidelog.errors import StateSchemaError, UserFunctionError
from tidelog.ids import CheckpointId
from tidelog.runtime.graph import Job
from tidelog.runtime.sink import Sink, SinkContext, SinkWriter
from tidelog.runtime.source import SplitReader
from tidelog.state.processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)
from tidelog.storage.memory import MemoryStore


class Oops(Exception):
    """The user's mistake."""


class Mistake:
    """Raises at one place, at the poison when the place sees words."""

    def __init__(self, place: str = "") -> None:
        self._place = place

    def __call__(self, place: str, word: str = POISON) -> str:
        if place == self._place and word == POISON:
            raise Oops("no luck")
        return word


class FragileSource(Portions):
    def __init__(self, mistake: Mistake) -> None:
        super().__init__({"left": [*WORDS, POISON], "right": WORDS})
        self._mistake = mistake

    def discover(self) -> Iterable[str]:
        self._mistake("discover")
        return super().discover()

    def open(self, split: str, position: Any) -> SplitReader:
        self._mistake("open")
        return FragileReader(super().open(split, position), self._mistake)


class FragileReader(Within):
    def __init__(self, reader: SplitReader, mistake: Mistake) -> None:
        super().__init__(reader)
        self._mistake = mistake

    def read(self) -> list[Any] | None:
        records = super().read()
        for word in records or ():
            self._mistake("read", word)
        return records

    def close(self) -> None:
        self._mistake("close reader")


class Tally(StatefulProcessor):
    """Numbers the occurrences of a word; its timers only expire."""

    def __init__(self, mistake: Mistake) -> None:
        self._mistake = mistake
        mistake("constructor")

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._mistake("init")
        self.count = handle.getValueState("count", "number long")
        self.handle = handle

    def handleInputRows(
        self, key: tuple[Any, ...], rows: Iterator[Any], timerValues: TimerValues
    ) -> Iterator[Any]:
        self.handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + 1)
        for word in rows:
            self._mistake("handleInputRows", word)
            (count,) = self.count.get() or (0,)
            self.count.update((count + 1,))
            yield word, count + 1

    def handleExpiredTimer(
        self, key: tuple[Any, ...], timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[Any]:
        self._mistake("handleExpiredTimer")
        return iter(())

    def close(self) -> None:
        self._mistake("close processor")


class FragileSink(Sink):
    """Two-phase; a failed pre-commit has already let go of its records, as the worst do."""

    def __init__(self, outside: Outside, mistake: Mistake) -> None:
        self._outside = outside
        self._mistake = mistake

    def open(self, context: SinkContext) -> SinkWriter:
        self._mistake("open sink")
        return FragileWriter(self._outside.open(context), self._mistake)


class FragileWriter(SinkWriter):
    def __init__(self, writer: SinkWriter, mistake: Mistake) -> None:
        self._writer = writer
        self._mistake = mistake

    def recover(self, transactions: Sequence[bytes]) -> None:
        self._mistake("recover")
        self._writer.recover(transactions)

    def write(self, records: Sequence[Any]) -> None:
        for word, _ in records:
            self._mistake("write", word)
        self._writer.write(records)

    def pre_commit(self, checkpoint: CheckpointId) -> bytes | None:
        token = self._writer.pre_commit(checkpoint)
        if token is not None:
            self._mistake("pre_commit")
        return token

    def commit(self, transaction: bytes) -> None:
        self._mistake("commit")
        self._writer.commit(transaction)

    def close(self) -> None:
        self._mistake("close sink")
        self._writer.close()


def tally(outside: Outside, mistake: Mistake) -> Job:
    """Every kind of user function in one job."""
    job = Job("tally")
    words = job.source(FragileSource(mistake)).map(lambda w: mistake("map", w), name="check")
    words = words.map_batches(lambda batch: [mistake("map_batches", w) for w in batch])
    words = words.filter(lambda w: bool(mistake("filter", w)), name="keep")
    words = words.flat_map(lambda w: [mistake("flat_map", w)], name="split")
    words = words.event_time(lambda w: len(mistake("event_time", w)), max_delay_ms=99, name="time")
    words.sink(ForeachSink(lambda w: mistake("callback", w), lambda: mistake("flush")), name="bell")
    keyed = words.key_by(lambda w: mistake("key_by", w))
    counted = keyed.transform_with_state(
        lambda: Tally(mistake), time_mode="processing", name="tally"
    )
    counted.sink(FragileSink(outside, mistake), name="shelf")
    sums = words.key_by(str).aggregate(
        lambda w: len(mistake("value_of", w)) and 1,
        lambda a, b: (mistake("combine"), a + b)[1],
        name="adding",
    )
    sums.map(lambda pair: ("sum", *pair)).sink(outside, name="sums")
    return job


def counted_right(outside: Outside) -> bool:
    numbered = [(word, n) for word in EXPECTED for n in range(1, EXPECTED[word] + 1)]
    sums = [("sum", word, count) for word, count in EXPECTED.items()]
    return Counter(outside.records) == Counter([*numbered, *sums])


def broken_off() -> tuple[MemoryStore, Outside]:
    """A store with some checkpoints, and what its sink shows so far."""
    objects, outside = _left_behind()
    return store_of(objects), deepcopy(outside)


@cache
def _left_behind() -> tuple[Mapping[str, bytes], Outside]:
    store, outside = MemoryStore(), Outside()
    with pytest.raises(UserFunctionError):
        start(tally(outside, Mistake("map")), store, seed=1)
    assert outside.records
    return contents(store), outside


PLACES = {
    "discover": "source",
    "open": "source",
    "read": "source",
    "close reader": "source",
    "map": "check",
    "map_batches": "map-batches",
    "filter": "keep",
    "flat_map": "split",
    "event_time": "time",
    "key_by": "key_by before operator 'tally'",
    "constructor": "tally",
    "init": "Tally.init",
    "handleInputRows": "Tally.handleInputRows",
    "handleExpiredTimer": "Tally.handleExpiredTimer",
    "close processor": "tally",
    "open sink": "shelf",
    "recover": "shelf",
    "write": "shelf",
    "pre_commit": "shelf",
    "commit": "shelf",
    "close sink": "shelf",
    "value_of": "adding",
    "combine": "adding",
    "callback": "bell",
    "flush": "bell",
}


@pytest.mark.parametrize("place", PLACES)
def test_the_function_is_named_with_its_cause_and_mended_the_job_is_exact(place: str) -> None:
    # Values are combined for words before the poison.
    store, outside = (MemoryStore(), Outside()) if place == "combine" else broken_off()
    with pytest.raises(UserFunctionError) as failed:
        start(tally(outside, Mistake(place)), store)
    assert failed.value.what == PLACES[place]
    assert (failed.value.found or "").startswith("Oops: no luck, at tests/faults/test_user_errors")
    assert isinstance(failed.value.__cause__, Oops)
    assert "fix the function" in failed.value.action
    start(tally(outside, Mistake()), store, seed=3)
    assert counted_right(outside)


class Unsaid(Oops):
    def __str__(self) -> str:
        raise ValueError("no text")


def test_the_function_is_named_also_where_the_text_of_its_error_fails() -> None:
    def fail(word: str) -> str:
        raise Unsaid

    job = Job("unsaid")
    job.source(FragileSource(Mistake())).map(fail, name="fail").sink(Outside())
    with pytest.raises(UserFunctionError, match=r"fail raised Unsaid, whose text fails"):
        start(job, MemoryStore())


def test_a_value_that_cannot_be_stored_is_refused_before_any_checkpoint_misses_it() -> None:
    store = MemoryStore()

    def sets(value_of: Any) -> tuple[Job, Outside]:
        outside = Outside()
        job = Job("sets")
        words = job.source(FragileSource(Mistake())).key_by(str)
        words.aggregate(value_of, lambda a, b: a + b).sink(outside)
        return job, outside

    with pytest.raises(StateSchemaError, match="operator 'aggregate'") as failed:
        start(sets(lambda w: object() if w == POISON else 1)[0], store, settings(retain=3))
    assert "builtins.object" in str(failed.value)
    job, outside = sets(lambda w: 1)
    start(job, store, settings(retain=3), seed=3)
    assert Counter(dict(outside.records)) == EXPECTED
