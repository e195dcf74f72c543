"""The two topics of the exactly-once sink beside its targets: made, read and cut.

Invariants: a read ends where the log ended when it began, or later; records that are missing are an
error, never skipped.
"""

import hashlib
import logging
import re
from collections.abc import Generator, Iterator
from concurrent.futures import Future, wait
from threading import Event as Stop
from typing import Any, Final

from tidelog.connectors.kafka import client
from tidelog.connectors.kafka.client import Cluster, failures
from tidelog.connectors.kafka.writing.messages import Message
from tidelog.connectors.kafka.writing.producing import PATIENCE_S, now, patiently, reader
from tidelog.connectors.kafka.writing.staging import (
    Commits,
    StagedRange,
    decode_commits,
    lost,
    topics_are_gone,
    unwrapped,
)
from tidelog.connectors.kafka.writing.topics import LARGEST, TopicAdmin
from tidelog.connectors.outside import answered
from tidelog.errors import ObjectNotFoundError, StoreUnreachableError
from tidelog.events import Event
from tidelog.runtime.sink import SinkContext

logger = logging.getLogger(__name__)

_STAGING_TOPIC: Final = ".staging"
_COMMITS_TOPIC: Final = ".commits"
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
_ILLEGAL: Final = re.compile(r"[^a-zA-Z0-9._-]")
_LONGEST: Final = 200
_BATCH: Final = 500
_KAFKAS_LARGEST: Final = 1_048_588
_ENVELOPE: Final = 64 << 10
_CUT_S: Final = 10.0


class StagingTopics:
    """The names of one sink's topics and transactional ids, and what is in the topics."""

    def __init__(
        self, cluster: Cluster, prefix: str, context: SinkContext, largest_message: int
    ) -> None:
        self.cluster = cluster
        self._largest = max(_KAFKAS_LARGEST, largest_message + _ENVELOPE)
        self._stem = _legal(f"{prefix}.{context.job}.{context.name}")
        self.staging = self._stem + _STAGING_TOPIC
        self.commits = self._stem + _COMMITS_TOPIC
        self._consumer: Any = None
        self._admin = TopicAdmin(cluster)
        self._cuts: list[Future[Any]] = []

    def transactional_id(self, partition: int) -> str:
        """The id under which the records of a staging partition are moved."""
        return f"{self._stem}.{partition}"

    def make(self, partitions: int) -> int:
        """Create what is missing, with so many partitions at least; returns how many there are."""
        admin, largest = self._admin, str(self._largest)
        sizes = (
            admin.make(self.staging, partitions, {**_STAGING, LARGEST: largest}),
            admin.make(self.commits, partitions, _COMMITS),
        )
        # Staging takes what the topics do that records are moved to.
        admin.enlarge(self.staging, self._largest)
        return min(sizes)

    def was_moved(self, staged: StagedRange) -> bool:
        """Whether a range was moved that waited under another name or prefix of the sink."""
        commits = staged.topic.removesuffix(_STAGING_TOPIC) + _COMMITS_TOPIC
        try:
            last = self.last_commits(commits, staged.partition)
        except ObjectNotFoundError:
            return False
        return last is not None and last.moved.get(str(staged.start), 0) >= staged.stop

    def last_commits(self, topic: str, partition: int) -> Commits | None:
        """The last message of a topic of commits; None when there is none.

        Exact only when no transaction can be open that writes there.
        """
        end = self.end(topic, partition)
        last = None
        beginning = client.library().OFFSET_BEGINNING
        for message in self._read(topic, partition, beginning, end):
            last = message
        return None if last is None else decode_commits(last.value(), _name_of(topic, partition))

    def staged(self, staged: StagedRange, first: int) -> Generator[tuple[int, Message], None, None]:
        """The records of a range from number `first` on, each with its offset in staging.

        Raises ObjectNotFoundError when one is missing.
        """
        number = first
        end = self.end(staged.topic, staged.partition)
        if end < staged.end:
            raise lost(staged, f"that the topic ends at offset {end}")
        for message in self._read(staged.topic, staged.partition, staged.begin, staged.end):
            record = unwrapped(message, staged.start)
            if record is None or record[0] < number:
                continue  # of another start, moved before, or sent twice
            if record[0] > number:
                break
            yield message.offset(), record[1]
            number += 1
            if number == staged.stop:
                return
        raise lost(staged, f"no record {number}")

    def cut(self, partition: int, before: int) -> None:
        """Begin to delete staged records that nobody asks for; the next makes up for a failure."""
        if any(not future.done() for future in self._cuts):
            return
        self._log_failed_cuts()
        position = client.library().TopicPartition(self.staging, partition, before)
        futures = self._admin.client.delete_records([position], request_timeout=_CUT_S)
        self._cuts = list(futures.values())

    def close(self) -> None:
        wait(self._cuts, timeout=_CUT_S)
        self._log_failed_cuts()
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _log_failed_cuts(self) -> None:
        for future in self._cuts:
            error = future.exception() if future.done() else "no answer"
            if error is not None:
                Event.STAGING_NOT_CUT.log(logger, topic=self.staging, error=error)

    def _connected(self) -> Any:
        if self._consumer is None:
            self._consumer = reader(self.cluster, f"{self._stem}.reader")
        return self._consumer

    def waits(self, staged: StagedRange) -> bool:
        """Whether the records of a range are in staging."""
        first, end = self._marks(staged.topic, staged.partition)
        return first <= staged.begin and staged.end <= end

    def end(self, topic: str, partition: int) -> int:
        """The offset after the last record."""
        return self._marks(topic, partition)[1]

    def _marks(self, topic: str, partition: int) -> tuple[int, int]:
        """The offsets of the first record and after the last one."""
        what = _name_of(topic, partition)
        position = client.library().TopicPartition(topic, partition)
        consumer = self._connected()
        # Asked of the leader: a new one answers when it knows all that was acknowledged.
        marks = patiently(
            lambda limit_s: consumer.get_watermark_offsets(position, timeout=limit_s),
            what,
            self.cluster,
        )
        if marks is None:
            raise _unreachable(what)
        return marks[0], marks[1]

    def _read(self, topic: str, partition: int, begin: int, end: int) -> Iterator[Any]:
        """Messages from `begin` on, until the log ends at `end` or later."""
        kafka, codes = client.library(), client.library().KafkaError
        # After these a consumer goes on by itself.
        passing = (codes._ALL_BROKERS_DOWN, codes._TRANSPORT, codes._RESOLVE, codes._TIMED_OUT)
        what = _name_of(topic, partition)
        consumer = self._connected()
        with failures(what, self.cluster):
            consumer.assign([kafka.TopicPartition(topic, partition, begin)])
        try:
            deadline = now() + PATIENCE_S
            while True:
                for message in self._fetched(consumer, what):
                    error = message.error()
                    if error is None:
                        deadline = now() + PATIENCE_S
                        yield message
                    elif error.code() == codes._PARTITION_EOF:
                        if message.offset() >= end:
                            return
                    elif client.is_of_group(error):
                        continue
                    elif error.code() in (codes._AUTO_OFFSET_RESET, codes.OFFSET_OUT_OF_RANGE):
                        expected = f"the message at offset {begin}"
                        raise topics_are_gone(what, expected, "that it was deleted")
                    elif not error.retriable() and error.code() not in passing:
                        raise client.translated(error, what, self.cluster)
                if now() > deadline:
                    raise _unreachable(what)
        finally:
            consumer.unassign()

    def _fetched(self, consumer: Any, what: str) -> list[Any]:
        """What comes next; raises StoreUnreachableError when nothing does."""
        stopped = Stop()
        with answered(f"{what} in {self.cluster}", PATIENCE_S, stopped.set):
            while not stopped.is_set():
                with failures(what, self.cluster):
                    # Many at once would wait until there are so many.
                    messages: list[Any] = consumer.consume(1, 0.5) + consumer.consume(_BATCH, 0)
                if messages:
                    return messages
            raise TimeoutError


def _name_of(topic: str, partition: int) -> str:
    return f"partition {partition} of topic {topic!r}"


def _unreachable(what: str) -> StoreUnreachableError:
    return StoreUnreachableError(
        what,
        expected=f"an answer within {PATIENCE_S:.0f} seconds",
        found="none",
        action="check that the brokers run and can be reached from here",
    )


def _legal(name: str) -> str:
    """A name that Kafka takes, another one for each name."""
    legal = _ILLEGAL.sub("_", name)[:_LONGEST]
    if legal == name:
        return name
    return f"{legal}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"
