"""A source of one's own is planned as ranges of its splits, and read by them."""

import pickle
from collections.abc import Iterator
from itertools import pairwise
from threading import Lock
from typing import Any, cast

import pyarrow as pa
import pytest

from tests.support.clock import VirtualClock
from tidelog.connectors.program.sources import PushSource
from tidelog.errors import ConfigError, RestoreError, UserFunctionError
from tidelog.runtime.source import Source, SplitReader
from tidelog.spark.checkpoint.commits import Offsets
from tidelog.spark.handover.sources import offset_at, offset_of, stored_splits
from tidelog.spark.job.splits import OwnSource, Range, RangeReader, ReadAhead, own_frame, ranges
from tidelog.state.objects.values import ObjectEncoding


class Reader(SplitReader):
    """Numbers up to the end of the split, as many in a read as `chunks` says in turn."""

    def __init__(self, source: "Numbers", split: str, position: int) -> None:
        self.position = position
        self._source, self._split, self._chunks = source, split, list(source.chunks)

    def read(self) -> list[int] | None:
        end = self._source.ends[self._split]
        if self.position >= end:
            return None if self._source.over else []
        self._chunks.append(self._chunks.pop(0))
        first, self.position = self.position, min(end, self.position + self._chunks[0])
        return list(range(first, self.position))


class Numbers(Source):
    new_split_position = 2

    def __init__(self, ends: dict[str, int], chunks: list[int], *, over: bool = False) -> None:
        self.ends, self.chunks, self.over = ends, chunks, over
        self.rediscover_s = 1.0
        self.resumes_ended_splits = False

    def discover(self) -> list[str]:
        return list(self.ends)

    def open(self, split: str, position: Any) -> Reader:
        return Reader(self, split, position or 0)


def own(source: Source, limit: int | None = None) -> OwnSource:
    return OwnSource("numbers", source, limit)


def rows_of(parts: list[Range]) -> Iterator[pa.RecordBatch]:
    names = ["split", "position", "records", "ended"]
    for part in parts:
        yield pa.RecordBatch.from_pylist([dict(zip(names, part, strict=True))])


def read(own_source: OwnSource, start: Any, end: Any) -> dict[str, list[int]]:
    """What executors read of a batch, by split."""
    records: dict[str, list[int]] = {}
    for batch in rows_of(ranges(own_source, start, end)):
        for split, numbers in pickle.loads(pickle.dumps(RangeReader(own_source))).read(batch):
            records.setdefault(split, []).extend(numbers)
    return records


def test_batches_have_every_record_once_however_a_reader_divides_them() -> None:
    planned, clock = Numbers({"a": 10, "b": 5}, [3, 4]), VirtualClock()
    ahead = ReadAhead(own(planned, 5), None, clock)
    offsets: list[Any] = [{"splits": None}]
    for _ in range(3):
        offsets.append(ahead.latest())
    repeated = own(Numbers({"a": 10, "b": 5}, [7, 1, 2]))
    batches = [read(repeated, *pair) for pair in pairwise(offsets)]
    assert batches[0] == {"a": list(range(7)), "b": list(range(5))}
    assert batches[1] == {"a": [7, 8, 9]}
    assert batches[2] == {}, "nothing has moved"
    assert offsets[3] == offsets[2]


def test_a_split_without_records_is_left_alone_for_a_while_and_new_ones_are_found() -> None:
    source, clock = Numbers({"a": 2}, [9]), VirtualClock()
    ahead = ReadAhead(own(source), None, clock)
    before = ahead.latest()
    source.ends.update(a=4, b=6)
    assert ahead.latest() == before, "neither is due"
    clock.spend(1.0)
    after = ahead.latest()
    assert read(own(source), before, after) == {"a": [2, 3], "b": [2, 3, 4, 5]}


def test_the_end_of_a_split_is_said_though_no_record_comes_with_it() -> None:
    source = Numbers({"a": 2}, [9])
    ahead = ReadAhead(own(source), None, VirtualClock())
    before = ahead.latest()
    source.over = True
    later = ReadAhead(own(source), before, VirtualClock())
    [part] = ranges(own(source), before, later.latest())
    assert (part.split, part.records, part.is_ended) == ("a", 0, True)
    reader = RangeReader(own(source))
    assert not reader.ended
    assert [list(reader.read(batch)) for batch in rows_of([part])] == [[("a", [])]]
    assert reader.ended
    ended = later.latest()
    assert ReadAhead(own(source), ended, VirtualClock()).latest() == ended, "it stays so"
    source.resumes_ended_splits = True
    source.ends["a"] = 3
    again = ReadAhead(own(source), ended, VirtualClock()).latest()
    assert read(own(source), ended, again) == {"a": [2]}


def test_a_query_goes_on_with_what_a_manifest_has_and_gives_it_back() -> None:
    encode = ObjectEncoding("positions").encode
    stored = {"a": encode([False, 7]), "b": encode([True, 5])}
    source = Numbers({"a": 9, "b": 5, "c": 4}, [9], over=True)
    begin = offset_at("numbers", stored)
    end = ReadAhead(own(source), begin, VirtualClock()).latest()
    assert read(own(source), begin, end) == {"a": [7, 8], "c": [2, 3]}
    positions = {
        split: ObjectEncoding("p").decode(data) for split, data in stored_splits(end).items()
    }
    assert positions == {"a": [True, 9], "b": [True, 5], "c": [True, 4]}


def test_a_source_that_has_fewer_records_than_before_is_an_error() -> None:
    source = Numbers({"a": 9}, [4])
    begin = offset_at("numbers", {"a": ObjectEncoding("p").encode([False, 0])})
    end = ReadAhead(own(source), begin, VirtualClock()).latest()
    with pytest.raises(RestoreError, match=r"expected 9 records after the position.*found 5"):
        read(own(Numbers({"a": 5}, [4], over=True)), begin, end)


def test_an_error_of_the_source_names_it() -> None:
    source = Numbers({"a": 9}, [4])
    begin = offset_at("numbers", {"a": ObjectEncoding("p").encode([False, 0])})
    source.ends.clear()
    with pytest.raises(UserFunctionError, match="numbers"):
        ReadAhead(own(source), begin, VirtualClock()).latest()


def test_offsets_of_other_sources_are_left_alone() -> None:
    documents = ({"tidelog_source": "other", "splits": {}}, {"t": {"0": 1}}, 5)
    assert offset_of(Offsets({}, {}, documents), "numbers") is None
    assert offset_of(Offsets({}, {}, documents), "other") == documents[0]


class Pushed(PushSource):
    def discover(self) -> list[str]:
        return ["a"]

    async def push(self, split: str, position: Any, emitter: Any) -> None:
        await emitter.emit([1], 1)


class Waiting(Numbers):
    blocking = True


def unpicklable() -> Source:
    source = Numbers({"a": 1}, [1])
    source.lock = Lock()  # type: ignore[attr-defined]
    return source


@pytest.mark.parametrize(
    ("source", "reason", "action"),
    [
        (Pushed(), "that records are pushed to", "run_operator"),
        (Waiting({"a": 1}, [1]), "waits for them in `read`", "reads_without_waiting"),
        (unpicklable(), "cannot pickle", "in `open`"),
    ],
)
def test_a_source_that_spark_cannot_plan_is_refused_before_it_is_asked(
    source: Source, reason: str, action: str
) -> None:
    with pytest.raises(ConfigError, match="source 'numbers', a") as refusal:
        own_frame(cast(Any, None), own(source), None, None)
    assert reason in str(refusal.value) and action in str(refusal.value)
