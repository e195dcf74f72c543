"""Where the partitions of a source begin and end, and what is there to read.

Invariant: what a time or "latest" means is asked once, when the source begins, and is an offset
from then on.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Literal

from tidelog.connectors.kafka.client import Cluster, failures, library
from tidelog.connectors.kafka.reading.partition import TopicPartition
from tidelog.errors import ObjectNotFoundError, require

EARLIEST: Final = "earliest"
"""A position: the oldest message that there is."""
MADE_AGAIN: Final = "the topic was made again, or has lost messages"

Start = Literal["earliest", "latest"] | datetime | Mapping[tuple[str, int], int]
MissingOffset = Literal["fail", "earliest", "latest"]

_LATEST: Final = -1
_OLDEST: Final = -2
"""Timestamps that stand for the end and the beginning, in Kafka's protocol."""


def check_start(start: Start) -> None:
    """Raises ConfigError for what is no start."""
    if isinstance(start, datetime):
        fits = start.tzinfo is not None
    elif isinstance(start, Mapping):
        fits = all(
            isinstance(place, tuple)
            and list(map(type, place)) == [str, int]
            and type(offset) is int
            and offset >= 0
            for place, offset in start.items()
        )
    else:
        fits = start in (EARLIEST, "latest")
    expected = "'earliest', 'latest', a datetime with a time zone, or offsets as "
    expected += "{('topic', partition): offset}"
    require("start of a KafkaSource", repr(start), fits, expected)


def first_offsets(
    start: Start,
    places: Sequence[TopicPartition],
    consumer: Any,
    cluster: Cluster,
    timeout_s: float,
) -> dict[TopicPartition, int | str]:
    """The position at which each partition begins; raises what the cluster answers."""
    if isinstance(start, Mapping):
        unknown = start.keys() - set(places)
        found = ", ".join(map(str, sorted(unknown)))
        require("start of a KafkaSource", found, not unknown, "partitions of its topics")
        return {place: start.get(place, EARLIEST) for place in places}
    if isinstance(start, datetime):
        return dict(_offsets(round(start.timestamp() * 1000), places, consumer, cluster, timeout_s))
    if start == EARLIEST:
        return dict.fromkeys(places, EARLIEST)
    return dict(end_offsets(places, consumer, cluster, timeout_s))


def end_offsets(
    places: Sequence[TopicPartition], consumer: Any, cluster: Cluster, timeout_s: float
) -> dict[TopicPartition, int]:
    """Behind the last message that may be read; raises what the cluster answers."""
    return _offsets(_LATEST, places, consumer, cluster, timeout_s)


def oldest_offset(place: TopicPartition, consumer: Any, cluster: Cluster, timeout_s: float) -> int:
    """Raises what the cluster answers."""
    return _offsets(_OLDEST, [place], consumer, cluster, timeout_s)[place]


def gone(
    place: TopicPartition, offset: object, found: str, cluster: Cluster
) -> ObjectNotFoundError:
    """The error for a partition that does not go on where the job has left it."""
    return ObjectNotFoundError(
        f"{place}, offset {offset} in {cluster}",
        expected="the message that the job is to read next",
        found=found,
        action="bring the topic back; or begin anew with what is there: give the source another "
        "name, and allow the state of this one to be dropped (--allow-dropped-state)",
        retry_safe=False,
    )


def _offsets(
    time_ms: int,
    places: Sequence[TopicPartition],
    consumer: Any,
    cluster: Cluster,
    timeout_s: float,
) -> dict[TopicPartition, int]:
    kind = library().TopicPartition
    asked = [kind(place.topic, place.partition, time_ms) for place in places]
    found: dict[TopicPartition, int] = {}
    with failures("the offsets of " + ", ".join(map(str, places[:3])), cluster):
        if asked:
            for each in consumer.offsets_for_times(asked, timeout=timeout_s):
                if each.error is not None:
                    raise library().KafkaException(each.error)
                found[TopicPartition(each.topic, each.partition)] = each.offset
    after_all = [place for place, offset in found.items() if offset < 0]
    if after_all:  # no message is as new as the time that was asked for
        found.update(_offsets(_LATEST, after_all, consumer, cluster, timeout_s))
    return found
