"""Partitions of topics: where they begin and end, and what is there to read.

Invariant: what a time or "latest" means is asked once, when the source begins, and is an offset
from then on.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple

from tidelog.connectors.kafka.client import Cluster, failures, library
from tidelog.errors import ObjectNotFoundError, require

EARLIEST: Final = "earliest"
"""A position: the oldest message that there is."""
MADE_AGAIN: Final = "the topic was made again, or has lost messages"

Start = Literal["earliest", "latest"] | datetime | Mapping[tuple[str, int], int]
MissingOffset = Literal["fail", "earliest", "latest"]

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
            found = ", ".join(map(str, sorted(unknown)))
            require("start of a KafkaSource", found, not unknown, "partitions of its topics")
            return {each: start.get(each, EARLIEST) for each in partitions}
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
        asked = [library().TopicPartition(*partition, time_ms) for partition in partitions]
        found: dict[TopicPartition, int] = {}
        with failures("the offsets of " + ", ".join(map(str, partitions[:3])), self._cluster):
            if asked:
                for each in self._client.offsets_for_times(asked, timeout=self._timeout_s):
                    if each.error is not None:
                        raise library().KafkaException(each.error)
                    found[TopicPartition(each.topic, each.partition)] = each.offset
        after_all = [partition for partition, offset in found.items() if offset < 0]
        if after_all:  # no message is as new as the time that was asked for
            found.update(self._at(_LATEST, after_all))
        return found


def gone(
    partition: TopicPartition, offset: object, found: str, cluster: Cluster
) -> ObjectNotFoundError:
    """The error for a partition that does not go on where the job has left it."""
    return ObjectNotFoundError(
        f"{partition}, offset {offset} in {cluster}",
        expected="the message that the job is to read next",
        found=found,
        action="bring the topic back; or begin anew with what is there: give the source another "
        "name, and allow the state of this one to be dropped (--allow-dropped-state)",
        retry_safe=False,
    )
