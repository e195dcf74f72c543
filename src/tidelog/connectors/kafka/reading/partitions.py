"""Partitions of topics: where they begin and end, and one while its job reads it.

Invariants: what a time or "latest" means is asked once, when the source begins, and is an offset
from then on. The consumer's thread alone appends what it has fetched, the event loop alone takes;
a position belongs to the records before it; an error comes after the records that were fetched
before it.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from threading import Event
from typing import Any, Final, Literal, NamedTuple

from tidelog.connectors.kafka.client import Cluster, failures, library
from tidelog.connectors.kafka.reading.records import KafkaRecord
from tidelog.errors import ObjectNotFoundError, TidelogError, require
from tidelog.runtime.source import SplitReader

EARLIEST: Final = "earliest"
"""A position: the oldest message that there is."""
MADE_AGAIN: Final = "the topic was made again, or has lost messages"

Start = Literal["earliest", "latest"] | datetime | Mapping[tuple[str, int], int]
MissingOffset = Literal["fail", "earliest", "latest"]

_BATCH_RECORDS: Final = 4096
_LATEST: Final = -1
_OLDEST: Final = -2
"""Timestamps that stand for the end and the beginning, in Kafka's protocol."""


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    @classmethod
    def of(cls, split: str) -> "TopicPartition":
        """The partition that is a split of the source; one that no topic has for other splits."""
        topic, _, number = split.rpartition("/")
        return cls(topic, int(number)) if number.isdecimal() else cls(split, -1)

    @property
    def split(self) -> str:
        return f"{self.topic}/{self.partition}"

    def __str__(self) -> str:
        return f"topic {self.topic!r}, partition {self.partition}"


def check_start(start: Start) -> None:
    """Raises ConfigError for what is no start."""
    if isinstance(start, datetime):
        fits = start.tzinfo is not None
    elif isinstance(start, Mapping):
        fits = all(
            isinstance(partition, tuple)
            and list(map(type, partition)) == [str, int]
            and type(offset) is int
            and offset >= 0
            for partition, offset in start.items()
        )
    else:
        fits = start in (EARLIEST, "latest")
    expected = "'earliest', 'latest', a datetime with a time zone, or offsets as "
    expected += "{('topic', partition): offset}"
    require("start of a KafkaSource", repr(start), fits, expected)


class Offsets:
    """Asks brokers for offsets; every method raises what the cluster answers."""

    def __init__(self, client: Any, cluster: Cluster, timeout_s: float) -> None:
        self._client = client
        self._cluster = cluster
        self._timeout_s = timeout_s

    def first(
        self, start: Start, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int | str]:
        """The position at which each partition begins."""
        if isinstance(start, Mapping):
            unknown = start.keys() - set(partitions)
            names = ", ".join(map(str, sorted(unknown)))
            require("start of a KafkaSource", names, not unknown, "partitions of its topics")
            return {partition: start.get(partition, EARLIEST) for partition in partitions}
        if isinstance(start, datetime):
            # Before 1970 numbers mean something else.
            return dict(self._at(max(0, round(start.timestamp() * 1000)), partitions))
        if start == EARLIEST:
            return dict.fromkeys(partitions, EARLIEST)
        return dict(self.ends(partitions))

    def ends(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """The offsets after the last messages that may be read."""
        return self._at(_LATEST, partitions)

    def oldest(self, partition: TopicPartition) -> int:
        return self._at(_OLDEST, [partition])[partition]

    def _at(self, time_ms: int, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        requests = [library().TopicPartition(*partition, time_ms) for partition in partitions]
        offsets: dict[TopicPartition, int] = {}
        with failures("the offsets of " + ", ".join(map(str, partitions[:3])), self._cluster):
            if requests:
                for answer in self._client.offsets_for_times(requests, timeout=self._timeout_s):
                    if answer.error is not None:
                        raise library().KafkaException(answer.error)
                    offsets[TopicPartition(answer.topic, answer.partition)] = answer.offset
        after_all = [partition for partition, offset in offsets.items() if offset < 0]
        if after_all:  # no message is as new as the time that was asked for
            offsets.update(self._at(_LATEST, after_all))
        return offsets


def gone(
    partition: TopicPartition, offset: object, found: str, cluster: Cluster
) -> ObjectNotFoundError:
    """The error for a partition that does not go on where the job has left it."""
    return ObjectNotFoundError(
        f"{partition}, offset {offset} in {cluster}",
        expected="the message that the job is to read next",
        found=found,
        action="bring the topic back; or begin anew with what is there: give the source another "
        "name, and allow the state of this one to be dropped (--allow-non-restored-state)",
        retry_safe=False,
    )


class _Fetched(NamedTuple):
    records: list[KafkaRecord]
    position: Any
    size_bytes: int
    failure: TidelogError | None = None


class PartitionReader(SplitReader):
    """Gives the job what the thread has fetched of one partition, up to an end if there is one.

    `progress` is set when it took something; `leave` is called when the job is done with it.
    """

    def __init__(
        self,
        partition: TopicPartition,
        position: Any,
        end: int | None,
        progress: Event,
        leave: Callable[["PartitionReader"], None],
    ) -> None:
        self.partition = partition
        self.position = position
        self.end = end
        self._progress = progress
        self._leave = leave
        self._fetched: deque[_Fetched] = deque()
        self._listener: Callable[[], None] | None = None
        self._loop = asyncio.get_running_loop()
        self._records_in = self._records_out = 0
        self._bytes_in = self._bytes_out = 0
        self.fetched_to = position
        """The position after what the thread has fetched; its own."""
        self.paused = False
        """The thread fetches nothing of the partition; its own."""
        self.at_newest = False
        """The thread has fetched all that there is."""
        self.newest: int | None = None
        """The offset after the newest message that brokers have told of."""
        self._note_end()

    @property
    def unread(self) -> int | None:  # type: ignore[override]  # computed here
        if self.newest is None or not isinstance(self.position, int):
            return None
        return max(0, self.newest - self.position)

    @property
    def has_lag(self) -> bool:  # type: ignore[override]  # computed here
        return not self.at_newest

    @property
    def waiting(self) -> tuple[int, int]:
        """Records that the job has not taken, and their bytes."""
        return self._records_in - self._records_out, self._bytes_in - self._bytes_out

    def read(self) -> list[Any] | None:
        """Raises what went wrong with the partition."""
        if self.at_end:
            return None
        records: list[KafkaRecord] = []
        while self._fetched and len(records) < _BATCH_RECORDS:
            fetched = self._fetched[0]
            if fetched.failure is not None:
                if records:
                    break
                raise fetched.failure
            self._fetched.popleft()
            records += fetched.records
            self.position = fetched.position
            self._records_out += len(fetched.records)
            self._bytes_out += fetched.size_bytes
        self._progress.set()
        self._note_end()
        return None if self.at_end and not records else records

    def set_listener(self, listener: Callable[[], None]) -> None:
        self._listener = listener

    def close(self) -> None:
        self._leave(self)

    def put(self, records: list[KafkaRecord], position: int, size_bytes: int) -> None:
        """In the thread: records, and where the partition goes on after them."""
        self.fetched_to = position
        self._records_in += len(records)
        self._bytes_in += size_bytes
        self._hand_over(_Fetched(records, position, size_bytes))

    def fail(self, failure: TidelogError) -> None:
        """In the thread: the partition cannot be read on."""
        self._hand_over(_Fetched([], None, 0, failure))

    def _hand_over(self, fetched: _Fetched) -> None:
        first = not self._fetched
        self._fetched.append(fetched)
        if first and self._listener is not None:
            with suppress(RuntimeError):  # the loop was closed in the meantime
                self._loop.call_soon_threadsafe(self._listener)

    def _note_end(self) -> None:
        if self.end is not None:
            self.at_end = isinstance(self.position, int) and self.position >= self.end
            # A partition without a message has no position until the job asks for one.
            self.at_end = self.at_end or self.end == 0
