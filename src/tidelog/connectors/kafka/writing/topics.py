"""Topics: how many partitions they have, what they take, and how they are made.

Invariant: the topics that records are for exist before anything is promised to them, and a record
that they would refuse is refused before a checkpoint names it.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from tidelog.connectors.kafka import client
from tidelog.connectors.kafka.client import Cluster, failures
from tidelog.connectors.kafka.writing.messages import Message, refused
from tidelog.connectors.kafka.writing.producing import PATIENCE_S, now, patiently
from tidelog.connectors.outside import bounded
from tidelog.effects import hold_thread
from tidelog.errors import ObjectNotFoundError, UnavailableError
from tidelog.options.units import plural

LARGEST: Final = "max.message.bytes"

_OVERHEAD: Final = 120
"""Bytes of a batch with one message, beside the message."""
_PAUSE_S: Final = 0.05


class TopicAdmin:
    """Looks at topics and makes them; raises errors of `tidelog.errors`."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._trouble: Any = None
        """The last error of a connection."""
        self.client = cluster.admin({"error_cb": self._noticed})
        """Kept: what it was asked is forgotten with it."""

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has, 0 when there is no such topic.

        Asks for all topics: asking for one may create it.
        """
        found = patiently(self._list, f"the look-up of topic {topic!r}", self._cluster)
        metadata = None if found is None else found.get(topic)
        # Not its error: a topic without a leader is there.
        return 0 if metadata is None else len(metadata.partitions)

    def _list(self, limit_s: float) -> Any:
        """The topics; raises KafkaException with what a connection has met, if that is known."""
        try:
            return self.client.list_topics(timeout=limit_s).topics
        except client.library().KafkaException as error:
            self.client.poll(0)  # which logs what connections met, and calls `_noticed`
            if self._trouble is None:
                raise
            raise client.library().KafkaException(self._trouble) from error

    def _noticed(self, error: Any) -> None:
        """In a poll: a connection failed."""
        if error.code() != client.library().KafkaError._ALL_BROKERS_DOWN:
            self._trouble = error

    def settings(self, topic: str) -> dict[str, str]:
        """The settings of a topic; empty where this user has no right to see them."""
        kafka = client.library()
        resource = kafka.admin.ConfigResource(kafka.admin.ConfigResource.Type.TOPIC, topic)
        with suppress(kafka.KafkaException):
            described = self.client.describe_configs([resource])[resource]
            entries = self._result(described, f"settings of topic {topic!r}")
            return {name: entry.value for name, entry in entries.items()}
        return {}

    def make(self, topic: str, partitions: int, config: Mapping[str, str] = {}) -> int:
        """Create a topic that is missing, give it more partitions when it has fewer than so many.

        Returns how many it has.
        """
        kafka = client.library()
        lost_race = (kafka.KafkaError.TOPIC_ALREADY_EXISTS, kafka.KafkaError.INVALID_PARTITIONS)
        deadline = now() + PATIENCE_S
        present = self.partitions(topic)
        while present < partitions:
            if present:
                more = kafka.admin.NewPartitions(topic, partitions)
                futures = self.client.create_partitions([more])
            else:
                new = kafka.admin.NewTopic(topic, partitions, -1, config=dict(config))
                futures = self.client.create_topics([new])
            try:
                self._result(futures[topic], f"topic {topic!r}")
            except kafka.KafkaException as error:
                if error.args[0].code() not in lost_race:  # to another subtask
                    what = f"topic {topic!r}"
                    raise client.translated(error.args[0], what, self._cluster) from error
            present = self.partitions(topic)
            if present < partitions:  # not all brokers know of it yet
                hold_thread(_PAUSE_S)
                if now() > deadline:
                    raise UnavailableError(
                        f"topic {topic!r}",
                        expected=plural(partitions, "partition"),
                        found=f"{present}, and the brokers did not add any",
                        action="create the topic",
                    )
        return present

    def enlarge(self, topic: str, largest: int) -> None:
        """Let a topic take batches of so many bytes, if it does not."""
        if int(self.settings(topic).get(LARGEST, largest)) >= largest:
            return
        admin = client.library().admin
        size = admin.ConfigEntry(
            LARGEST, str(largest), incremental_operation=admin.AlterConfigOpType.SET
        )
        kind = admin.ConfigResource.Type.TOPIC
        change = admin.ConfigResource(kind, topic, incremental_configs=[size])
        what = f"{LARGEST} of topic {topic!r}"
        with failures(what, self._cluster):
            self._result(self.client.incremental_alter_configs([change])[change], what)

    def _result(self, answer: Any, what: str) -> Any:
        return bounded(f"{what} in {self._cluster}", PATIENCE_S, answer.result)


@dataclass(frozen=True, slots=True)
class Target:
    """What a topic takes."""

    partitions: int
    compacted: bool = False
    """cleanup.policy has compact: the topic refuses messages without a key."""
    largest: int | None = None
    """Bytes of a batch; None: not known."""

    def check(self, message: Message) -> None:
        """Raises UserFunctionError for a message that the topic would refuse."""
        topic = f"topic {message.topic!r}"
        if message.partition >= self.partitions:
            bounds = f"0 to {self.partitions - 1}, as {topic} has {self.partitions}"
            raise refused("partition", bounds, str(message.partition))
        if self.compacted and message.key is None:
            raise refused("key", f"one, as {topic} is compacted", "None")
        size = _size_of(message)
        if self.largest is not None and size > self.largest:
            limit = f"at most {self.largest} bytes, the {LARGEST} of {topic}"
            more = "(for more raise that, and message.max.bytes in client=)"
            raise refused("size", f"{limit} {more}", f"{size} bytes")


class Targets:
    """The topics of one writer; with `create`, one that is missing gets so many partitions."""

    def __init__(self, cluster: Cluster, create: int | None, *, compressed: bool = False) -> None:
        """`compressed`: how large a message is for its topic is not known before it is sent."""
        self._cluster = cluster
        self._create = create
        self._compressed = compressed
        self._admin: TopicAdmin | None = None
        self._targets: dict[str, Target] = {}
        self._new: dict[str, list[Message]] = {}
        """Per topic whose settings are not known yet: the messages to check once they are."""

    def add(self, topic: str) -> None:
        """Records go to this topic."""
        if topic not in self._targets:
            self._new.setdefault(topic, [])

    def know(self, messages: Iterable[Message]) -> bool:
        """These are sent after `check`: whether their topics and partitions are known already."""
        all_known = True
        for message in {(m.topic, m.partition): m for m in messages}.values():
            target = self._targets.get(message.topic)
            if target is None or message.partition >= target.partitions:
                # A topic may have got more partitions since it was looked at.
                self._targets.pop(message.topic, None)
                self._new.setdefault(message.topic, []).append(message)
                all_known = False
        return all_known

    def admit(self, message: Message) -> None:
        """A record goes there; raises UserFunctionError for one that a known topic would refuse."""
        target = self._targets.get(message.topic)
        if target is not None:
            target.check(message)
            return
        waiting = self._new.setdefault(message.topic, [])
        waiting.append(message)
        if len(waiting) > 3:  # the ones that are most likely to be refused
            furthest = max(waiting, key=lambda m: m.partition)
            keyless = min(waiting, key=lambda m: m.key is not None)
            self._new[message.topic] = [furthest, keyless, max(waiting, key=_size_of)]

    def check(self) -> None:
        """Find or create all topics that were added.

        Raises ObjectNotFoundError, and UserFunctionError for what one of them would refuse.
        """
        for topic in sorted(self._new):
            target = self._found(topic)
            for message in self._new[topic]:
                target.check(message)
            del self._new[topic]
            self._targets[topic] = target

    def largest(self) -> int:
        """The largest batch that a topic takes which is known; 0 when none says."""
        return max([target.largest or 0 for target in self._targets.values()], default=0)

    def _found(self, topic: str) -> Target:
        admin = self._admin = self._admin or TopicAdmin(self._cluster)
        partitions = admin.partitions(topic)
        if not partitions and self._create is None:
            raise ObjectNotFoundError(
                f"topic {topic!r}",
                expected=f"to exist at {self._cluster.bootstrap}",
                found="no such topic, or no right to see it",
                action="create it, or pass create= with a number of partitions to KafkaSink",
            )
        partitions = partitions or admin.make(topic, self._create or 0)
        settings = admin.settings(topic)
        largest = settings.get(LARGEST)
        return Target(
            partitions,
            # Also one that is "compact,delete".
            "compact" in settings.get("cleanup.policy", ""),
            None if largest is None or self._compressed else int(largest),
        )


def _size_of(message: Message) -> int:
    headers = sum([len(name) + len(value or b"") for name, value in message.headers])
    return _OVERHEAD + len(message.key or b"") + len(message.value or b"") + headers
