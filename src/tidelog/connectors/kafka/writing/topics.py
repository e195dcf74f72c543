"""The two topics of the exactly-once sink beside its targets: made, read and cut.

Invariants: a read ends where the log ended when it began, or later; records that are missing are an
error, never skipped.
"""

import hashlib
import logging
import re
from collections.abc import Generator, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import Any, Final

from tidelog.connectors.kafka import client
from tidelog.connectors.kafka.client import Cluster, failures
from tidelog.connectors.kafka.writing.messages import Message
from tidelog.connectors.kafka.writing.producing import PATIENCE_S, now, patiently, reader
from tidelog.connectors.kafka.writing.staging import (
    Commits,
    Envelope,
    StagedRange,
    decode_commits,
    envelope_of,
    lost,
)
from tidelog.effects import hold_thread
from tidelog.errors import ConfigError, ObjectNotFoundError, StoreUnreachableError
from tidelog.events import Event
from tidelog.runtime.sink import SinkContext

logger = logging.getLogger(__name__)

COMMITS_KEY: Final = b"commits"

_STAGING: Final = {
    "cleanup.policy": "delete",
    # Records leave by `cut` alone; by age they would leave while the job is stopped.
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "message.timestamp.type": "LogAppendTime",
    "segment.bytes": str(64 << 20),
}
_COMMITS: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": str(1 << 20),
    "min.cleanable.dirty.ratio": "0.1",
}
_SIZE: Final = "max.message.bytes"
_ILLEGAL: Final = re.compile(r"[^a-zA-Z0-9._-]")
_LONGEST: Final = 200
_BATCH: Final = 500
_KAFKAS_LARGEST: Final = 1_048_588
_PAUSE_S: Final = 0.05
_CUT_S: Final = 10.0


class Topics:
    """The names of one sink's topics and transactional ids, and what is in the topics."""

    def __init__(
        self, cluster: Cluster, prefix: str, context: SinkContext, largest_message: int
    ) -> None:
        self._cluster = cluster
        self._largest_message = largest_message
        self._stem = _legal(f"{prefix}.{context.job}.{context.name}")
        self.staging = f"{self._stem}.staging"
        self.commits = f"{self._stem}.commits"
        self._consumer: Any = None
        self._admin = cluster.admin()
        """Kept: what it was asked is forgotten with it."""
        self._cuts: list[Future[Any]] = []

    def transactional_id(self, partition: int) -> str:
        """The id under which the records of a staging partition are moved."""
        return f"{self._stem}.{partition}"

    def make(self, partitions: int) -> int:
        """Create what is missing, with so many partitions at least; returns how many there are."""
        # With room for the envelope.
        largest = max(_KAFKAS_LARGEST, self._largest_message + (64 << 10))
        size = {_SIZE: str(largest)}
        sizes = (
            make_topic(self._cluster, self.staging, partitions, {**_STAGING, **size}),
            make_topic(self._cluster, self.commits, partitions, _COMMITS),
        )
        if int(topic_settings(self._admin, self.staging).get(_SIZE, largest)) < largest:
            self._enlarge(largest)
        return min(sizes)

    def _enlarge(self, largest: int) -> None:
        """A staging topic takes what the topics do that records are moved to."""
        admin = client.library().admin
        size = admin.ConfigEntry(
            _SIZE, str(largest), incremental_operation=admin.AlterConfigOpType.SET
        )
        kind = admin.ConfigResource.Type.TOPIC
        change = admin.ConfigResource(kind, self.staging, incremental_configs=[size])
        with failures(f"{_SIZE} of topic {self.staging!r}", self._cluster):
            self._admin.incremental_alter_configs([change])[change].result(timeout=PATIENCE_S)

    def end_of_staging(self, partition: int) -> int:
        """The offset after the last staged record."""
        return self._end(self.staging, partition)

    def last_commits(self, partition: int) -> Commits | None:
        """The last message of the topic of commits; None when there is none.

        Exact only when no transaction can be open that writes there.
        """
        end = self._end(self.commits, partition)
        last: bytes | None = None
        found = False
        for message in self._read(self.commits, partition, self._beginning, end):
            last, found = message.value(), True
        where = f"partition {partition} of topic {self.commits!r}"
        return decode_commits(last, where) if found else None

    def commits_are_gone(self, partition: int) -> ObjectNotFoundError:
        """The error of a running job whose commits are no longer in their topic."""
        return ObjectNotFoundError(
            f"partition {partition} of topic {self.commits!r}",
            expected="what this start of the job has written there",
            found="nothing",
            action="bring back the topics of this sink",
            retry_safe=False,
        )

    def staged(self, staged: StagedRange, first: int) -> Generator[tuple[int, Message], None, None]:
        """The records of a range from number `first` on, each with its offset in staging.

        Raises ObjectNotFoundError when one is missing.
        """
        number = first
        end = self._end(staged.topic, staged.partition)
        if end < staged.end:
            raise lost(staged, f"that the topic ends at offset {end}")
        for message in self._read(staged.topic, staged.partition, staged.begin, staged.end):
            envelope = envelope_of(message.headers())
            if envelope is None or (envelope.generation, envelope.attempt) != staged.start:
                continue
            if envelope.number < number:
                continue  # moved before, or sent twice
            if envelope.number > number:
                break
            yield message.offset(), _unwrapped(message, envelope)
            number += 1
            if number == staged.stop:
                return
        raise lost(staged, f"no record {number}")

    def cut(self, partition: int, before: int) -> None:
        """Begin to delete staged records that nobody asks for; one that fails is made up for by
        the next.
        """
        if any(not future.done() for future in self._cuts):
            return
        self._see_cuts()
        position = client.library().TopicPartition(self.staging, partition, before)
        self._cuts = list(self._admin.delete_records([position], request_timeout=_CUT_S).values())

    def close(self) -> None:
        """Release the consumer."""
        wait(self._cuts, timeout=_CUT_S)
        self._see_cuts()
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _see_cuts(self) -> None:
        """Log what failed."""
        for future in self._cuts:
            error = future.exception() if future.done() else "no answer"
            if error is not None:
                Event.STAGING_NOT_CUT.log(logger, topic=self.staging, error=error)

    @property
    def _beginning(self) -> int:
        offset: int = client.library().OFFSET_BEGINNING
        return offset

    def _connected(self) -> Any:
        if self._consumer is None:
            self._consumer = reader(self._cluster, f"{self._stem}.reader")
        return self._consumer

    def _end(self, topic: str, partition: int) -> int:
        what = f"partition {partition} of topic {topic!r}"
        position = client.library().TopicPartition(topic, partition)
        consumer = self._connected()
        # Asked of the leader: a new one answers when it knows all that was acknowledged.
        marks = patiently(
            lambda: consumer.get_watermark_offsets(position, timeout=PATIENCE_S),
            what,
            self._cluster,
        )
        if marks is None:
            raise self._unreachable(what)
        end: int = marks[1]
        return end

    def _read(self, topic: str, partition: int, begin: int, end: int) -> Iterator[Any]:
        """Messages from `begin` on, until the log ends at `end` or later."""
        kafka, codes = client.library(), client.library().KafkaError
        what = f"partition {partition} of topic {topic!r}"
        consumer = self._connected()
        with failures(what, self._cluster):
            consumer.assign([kafka.TopicPartition(topic, partition, begin)])
        try:
            deadline = now() + PATIENCE_S
            while True:
                with failures(what, self._cluster):
                    # Many at once would wait until there are so many.
                    messages = consumer.consume(1, 0.5) + consumer.consume(_BATCH, 0)
                for message in messages:
                    error = message.error()
                    if error is None:
                        deadline = now() + PATIENCE_S
                        yield message
                    elif error.code() == codes._PARTITION_EOF:
                        if message.offset() >= end:
                            return
                    elif error.code() in (codes._AUTO_OFFSET_RESET, codes.OFFSET_OUT_OF_RANGE):
                        raise _deleted(what, begin)
                    elif not error.retriable() and error.code() not in self._passing:
                        raise client.translated(error, what, self._cluster)
                if now() > deadline:
                    raise self._unreachable(what)
        finally:
            consumer.unassign()

    @property
    def _passing(self) -> tuple[int, ...]:
        """Codes of a consumer that goes on by itself."""
        codes = client.library().KafkaError
        return (codes._ALL_BROKERS_DOWN, codes._TRANSPORT, codes._RESOLVE, codes._TIMED_OUT)

    def _unreachable(self, what: str) -> StoreUnreachableError:
        return StoreUnreachableError(
            what,
            expected=f"an answer within {PATIENCE_S:.0f} seconds",
            found="none",
            action="check that the brokers run and can be reached from here",
        )


def _deleted(what: str, offset: int) -> ObjectNotFoundError:
    return ObjectNotFoundError(
        what,
        expected=f"the message at offset {offset}",
        found="that it was deleted",
        action="bring back the topics of this sink, or restore a checkpoint that is retained",
        retry_safe=False,
    )


def make_topic(
    cluster: Cluster, topic: str, partitions: int, config: Mapping[str, str] = {}
) -> int:
    """Create a topic that is missing, give it more partitions when it has fewer than so many.

    Returns how many it has. Raises errors of `tidelog.errors`.
    """
    admin, kafka = cluster.admin(), client.library()
    deadline = now() + PATIENCE_S
    while True:
        present = partitions_of(cluster, admin, topic)
        if present >= partitions:
            return present
        if present:
            futures = admin.create_partitions([kafka.admin.NewPartitions(topic, partitions)])
        else:
            new = kafka.admin.NewTopic(topic, partitions, -1, config=dict(config))
            futures = admin.create_topics([new])
        try:
            futures[topic].result(timeout=PATIENCE_S)
        except kafka.KafkaException as error:
            # Another subtask was first.
            code, codes = error.args[0].code(), kafka.KafkaError
            if code not in (codes.TOPIC_ALREADY_EXISTS, codes.INVALID_PARTITIONS):
                raise client.translated(error.args[0], f"topic {topic!r}", cluster) from error
        if now() > deadline:
            raise ConfigError(
                f"topic {topic!r}",
                expected=f"{partitions} partitions",
                found=f"{present}, and the brokers did not add any",
                action="create the topic",
            )
        if partitions_of(cluster, admin, topic) < partitions:
            hold_thread(_PAUSE_S)  # the brokers have not told each other


def partitions_of(cluster: Cluster, admin: Any, topic: str) -> int:
    """How many partitions a topic has, 0 when there is no such topic.

    Asks for all topics: asking for one may create it.
    """
    topics = patiently(lambda: admin.list_topics(timeout=PATIENCE_S).topics, "", cluster)
    found = topics.get(topic)
    # Not its error: a topic without a leader is there.
    return 0 if found is None else len(found.partitions)


def topic_settings(admin: Any, topic: str) -> dict[str, str]:
    """The settings of a topic; empty where this user has no right to see them."""
    kafka = client.library()
    resource = kafka.admin.ConfigResource(kafka.admin.ConfigResource.Type.TOPIC, topic)
    with suppress(kafka.KafkaException):
        found = admin.describe_configs([resource])[resource].result(timeout=PATIENCE_S)
        return {name: entry.value for name, entry in found.items()}
    return {}


def _unwrapped(message: Any, envelope: Envelope) -> Message:
    return Message(
        envelope.topic,
        envelope.key,
        message.value(),
        message.headers()[1:],
        envelope.partition,
        envelope.timestamp,
    )


def _legal(name: str) -> str:
    """A name that Kafka takes, another one for each name."""
    legal = _ILLEGAL.sub("_", name)[:_LONGEST]
    if legal == name:
        return name
    return f"{legal}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"
