"""The topics that records are for: they exist before anything is promised to them, and a record
that they would refuse is refused before a checkpoint names it.
"""

from dataclasses import dataclass
from typing import Any, Final

from tidelog.connectors.kafka.client import Cluster
from tidelog.connectors.kafka.writing.messages import Message, refused
from tidelog.connectors.kafka.writing.topics import (
    make_topic,
    partitions_of,
    topic_settings,
)
from tidelog.errors import ObjectNotFoundError

_OVERHEAD: Final = 120
"""Bytes of a batch with one message, beside the message."""


@dataclass(frozen=True, slots=True)
class Target:
    """What a topic takes."""

    partitions: int
    compacted: bool = False
    """cleanup.policy is compact: the topic refuses messages without a key."""
    largest: int | None = None
    """Bytes of a batch; None: not known."""

    def check(self, message: Message) -> None:
        """Raises UserFunctionError for a message that the topic would refuse."""
        topic = f"topic {message.topic!r}"
        if message.partition >= self.partitions:
            most = f"0 to {self.partitions - 1}, as {topic} has {self.partitions}"
            raise refused("partition", most, str(message.partition))
        if self.compacted and message.key is None:
            raise refused("key", f"one, as {topic} is compacted", "None")
        size = _size_of(message)
        if self.largest is not None and size > self.largest:
            limit = f"at most {self.largest} bytes, the max.message.bytes of {topic}"
            more = "(for more raise that, and message.max.bytes in client=)"
            raise refused("size", f"{limit} {more}", f"{size} bytes")


class Targets:
    """The topics of one writer; with `create`, one that is missing gets so many partitions."""

    def __init__(self, cluster: Cluster, create: int | None, *, compressed: bool = False) -> None:
        """`compressed`: how large a message is for its topic is not known before it is sent."""
        self._cluster = cluster
        self._create = create
        self._compressed = compressed
        self._admin: Any = None
        self._known: dict[str, Target] = {}
        self._new: dict[str, list[Message]] = {}
        """Per topic whose settings are not known yet: the messages to check once they are."""

    def add(self, topic: str) -> None:
        """Records go to this topic."""
        if topic not in self._known:
            self._new.setdefault(topic, [])

    def admit(self, message: Message) -> None:
        """A record goes there; raises UserFunctionError for one that a known topic would refuse."""
        target = self._known.get(message.topic)
        if target is not None:
            target.check(message)
            return
        waiting = self._new.setdefault(message.topic, [])
        waiting.append(message)
        if len(waiting) > 3:  # the ones that are most likely to be refused
            furthest = max(waiting, key=lambda each: each.partition)
            keyless = min(waiting, key=lambda each: each.key is not None)
            self._new[message.topic] = [furthest, keyless, max(waiting, key=_size_of)]

    def check(self) -> None:
        """Find or create all topics that were added.

        Raises ObjectNotFoundError, and UserFunctionError for what one of them would refuse.
        """
        for topic in sorted(self._new):
            target = self._checked(topic)
            for message in self._new[topic]:
                target.check(message)
            del self._new[topic]
            self._known[topic] = target

    def largest(self) -> int:
        """The largest batch that a topic takes which is known; 0 when none says."""
        return max([target.largest or 0 for target in self._known.values()], default=0)

    def _checked(self, topic: str) -> Target:
        if self._admin is None:
            self._admin = self._cluster.admin()
        partitions = partitions_of(self._cluster, self._admin, topic)
        if not partitions:
            if self._create is None:
                raise ObjectNotFoundError(
                    f"topic {topic!r}",
                    expected=f"to exist at {self._cluster.bootstrap}",
                    found="no such topic, or no right to see it",
                    action="create it, or pass create= with a number of partitions to KafkaSink",
                )
            partitions = make_topic(self._cluster, topic, self._create)
        settings = topic_settings(self._admin, topic)
        largest = settings.get("max.message.bytes")
        return Target(
            partitions,
            settings.get("cleanup.policy") == "compact",
            None if largest is None or self._compressed else int(largest),
        )


def _size_of(message: Message) -> int:
    headers = sum([len(name) + len(value or b"") for name, value in message.headers])
    return _OVERHEAD + len(message.key or b"") + len(message.value or b"") + headers
