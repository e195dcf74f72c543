"""Topics of Kafka as a source: a split is a partition, its position an offset.

Invariants: the checkpoint alone says where a job goes on, the consumer group gets its offsets
afterwards; a partition that was begun and is gone is an error; one that appears later is read from
its beginning.
"""

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

from tidelog.connectors.arguments import typed
from tidelog.connectors.kafka.client import BY_HAND, Cluster, OnError, library, translated
from tidelog.connectors.kafka.reading.consumer import SharedConsumer
from tidelog.connectors.kafka.reading.partitions import (
    EARLIEST,
    MADE_AGAIN,
    MissingOffset,
    Offsets,
    PartitionReader,
    Start,
    TopicPartition,
    check_start,
    gone,
)
from tidelog.connectors.kafka.reading.records import Decode, Decoder
from tidelog.effects import Clock, SystemClock, hold_thread
from tidelog.errors import ObjectNotFoundError, StoreUnreachableError, TidelogError, require
from tidelog.runtime.source import Source

_TOPIC: Final = re.compile(r"[\w.-]{1,249}", re.ASCII)
_SETTLE_S: Final = 3.0
"""How long a topic may be unknown: a broker that has just started may not know it yet."""
_ANSWER_S: Final = 10.0
_SLICE_S: Final = 1.0

_NO_GROUP: Final = "tidelog"
"""Every consumer has a group; nothing is committed to this one, and nobody joins it."""
_FIXED: Final = {
    "group.id": "group=",
    "enable.auto.commit": "nothing: offsets are committed after checkpoints",
    "enable.auto.offset.store": "nothing: offsets are committed after checkpoints",
    "auto.offset.reset": "start= and on_missing_offset=",
    "enable.partition.eof": "stop=",
    "error_cb": "the log",
    "on_commit": "the log",
}
_DEFAULTS: Final = {
    "isolation.level": "read_committed",
    # What librdkafka holds is fetched again after a pause, and is memory besides the job's.
    "queued.max.messages.kbytes": 16_384,
    # By default up to 10 s pass before a broker that is back is found.
    "reconnect.backoff.max.ms": 1_000,
}


class KafkaSource(Source):
    """Messages of one or several topics as `KafkaRecord`s.

    - `start`: where the first run begins; later ones go on from their checkpoint.
    - `stop`: "latest" ends the job at what is there when it starts; None: it never ends.
    - `group`: offsets are committed to this consumer group when a checkpoint completes.
    - `key`, `value`: "bytes", "text", "json", or a function of the bytes.
    - `on_error`: what to do about messages that cannot be decoded: "fail", "skip", or a
      `DeadLetterTopic`.
    - `on_missing_offset`: what to do when retention was faster than the job: "fail", "earliest" or
      "latest".
    - `client`: settings of librdkafka.
    - `connect_s`, `outage_s`: how long to wait for brokers at the start, and later on; None: as
      long as it takes.
    - `rediscover_s`: how often new partitions are looked for.

    Raises ConfigError.
    """

    new_split_position = EARLIEST
    resumes_ended_splits = True

    @typed
    def __init__(
        self,
        topics: str | Sequence[str],
        *,
        bootstrap: str | Sequence[str],
        group: str | None = None,
        start: Start = "earliest",
        stop: Literal["latest"] | None = None,
        key: Decode = "bytes",
        value: Decode = "bytes",
        on_error: OnError = "fail",
        on_missing_offset: MissingOffset = "fail",
        client: Mapping[str, Any] | None = None,
        connect_s: float = 30.0,
        outage_s: float | None = 600.0,
        rediscover_s: float = 30.0,
    ) -> None:
        names = {topics} if isinstance(topics, str) else set(topics or ())
        valid = bool(names) and all(isinstance(t, str) and _TOPIC.fullmatch(t) for t in names)
        require("topics of a KafkaSource", topics, valid, "a topic's name, or several")
        self._topics = sorted(names)
        check_start(start)
        require("stop of a KafkaSource", stop, stop in (None, "latest"), "None or 'latest'")
        ways = ("fail", "earliest", "latest")
        require("on_missing_offset", on_missing_offset, on_missing_offset in ways, str(ways))
        require("group of a KafkaSource", group, group != "", "a name, or None")
        seconds = {"connect_s": connect_s, "rediscover_s": rediscover_s, "outage_s": outage_s or 1}
        for name, wait in seconds.items():
            require(f"{name} of a KafkaSource", wait, wait > 0, "more than 0 seconds")
        self._cluster = Cluster(bootstrap, client, fixed=_FIXED)
        self._clock: Clock = SystemClock()
        self._decoder = Decoder(key, value, on_error, self._cluster, self._clock)
        self._group = group
        self._start, self._stop = start, stop
        self._on_missing = on_missing_offset
        self._connect_s, self._outage_s = connect_s, outage_s
        self.rediscover_s = None if stop == "latest" else rediscover_s
        self.has_end = stop == "latest"
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._looking = threading.Lock()
        """Held while brokers are asked: the client must not be closed meanwhile."""
        self._closed = False
        self._discovering: Any = None
        """The client that asks which partitions there are, and where they begin and end. It has no
        partitions: one that is polled by a thread lets others wait until it has messages."""
        self._client: Any = None
        """The client that reads."""
        self._consumer: SharedConsumer | None = None
        self._partitions: list[TopicPartition] = []
        self._starts: dict[TopicPartition, int | str] = {}
        self._ends: dict[TopicPartition, int] = {}
        self._trouble: Any = None
        """The last error of a connection."""

    @property
    def topics(self) -> Sequence[str]:
        return self._topics

    @property
    def start(self) -> Start:
        """Where the first run begins."""
        return self._start

    @property
    def fails_on_missing_offset(self) -> bool:
        """Whether the job ends when retention was faster."""
        return self._on_missing == "fail"

    @property
    def cluster(self) -> Cluster:
        return self._cluster

    @property
    def decoder(self) -> Decoder:
        return self._decoder

    @property
    def skipped(self) -> int:  # type: ignore[override]  # counted by the decoder
        """Messages that could not be decoded and were left out, in this process."""
        return self._decoder.skipped

    def discover(self) -> list[str]:
        """Partitions as "topic/3". Raises StoreUnreachableError when no broker answers at the
        start, and ObjectNotFoundError for a topic or a partition that is not there.
        """
        with self._looking:
            return [partition.split for partition in self._discovered()]

    def _discovered(self) -> list[TopicPartition]:
        first = not self._partitions
        if self._discovering is None:
            self._discovering = self._new_client(self._noticed)
        try:
            partitions = self._known_partitions(self._connect_s if first else _ANSWER_S)
            if first:
                self._find_bounds(partitions)
        except StoreUnreachableError:
            if first:
                raise
            return self._partitions  # the consumer waits for the brokers, too
        self._partitions = partitions
        return partitions

    def _new_client(self, on_error: Callable[[Any], None]) -> Any:
        group = {"group.id": self._group or _NO_GROUP}
        calls = {"error_cb": on_error, "on_commit": self._committed}
        return self._cluster.consumer({**_DEFAULTS, **BY_HAND, **group, **calls})

    def open(self, split: str, position: Any) -> PartitionReader:
        """Raises ObjectNotFoundError for a partition that is gone, or not of these topics."""
        partition = TopicPartition.of(split)
        if partition not in self._partitions:
            raise gone(partition, position, _count(partition, self._partitions), self._cluster)
        end = self._ends.get(partition)
        if end is not None and isinstance(position, int) and position > end:
            raise gone(partition, position, f"an end at offset {end}: {MADE_AGAIN}", self._cluster)
        if self._consumer is None:
            self._client = self._new_client(self._lost)
            self._consumer = SharedConsumer(
                self._client,
                self._cluster,
                self._decoder,
                self._clock,
                on_missing=self._on_missing,
                outage_s=self._outage_s,
            )
        start = self._starts.get(partition, EARLIEST) if position is None else position
        return self._consumer.open(partition, start, end)

    def on_checkpoint_complete(self, positions: Mapping[str, Any]) -> None:
        if self._group is None or self._consumer is None:
            return
        offsets = {
            TopicPartition.of(split): position
            for split, position in positions.items()
            if isinstance(position, int)
        }
        if offsets:
            self._consumer.commit(offsets)

    def close(self) -> None:
        self._closed = True
        with self._looking:
            stopped = self._consumer is None or self._consumer.close()
            if self._discovering is not None:
                self._discovering.close()
            if self._client is not None and stopped:  # a client in use cannot be closed
                self._client.close()
            self._begin_anew()

    def _noticed(self, error: Any) -> None:
        """In a poll: a connection failed."""
        if error.code() != library().KafkaError._ALL_BROKERS_DOWN:
            self._trouble = error

    def _lost(self, error: Any) -> None:
        """In a poll of the client that reads: a connection failed."""
        if error.code() == library().KafkaError._ALL_BROKERS_DOWN and self._consumer is not None:
            self._consumer.away()

    def _committed(self, error: Any, offsets: Any) -> None:
        """In a poll: offsets were committed to the group, or not."""
        if error is not None and self._consumer is not None:
            self._consumer.not_committed(error)

    def _known_partitions(self, patience_s: float) -> list[TopicPartition]:
        """All partitions of the topics; waits for brokers, and for topics a little."""
        start_s = self._clock.monotonic()
        while True:
            if self._closed:
                return self._partitions
            try:
                partitions, topic_error = self._look()
            except library().KafkaException as error:
                if self._clock.monotonic() - start_s < patience_s:
                    continue
                raise self._unreachable(error.args[0], patience_s) from error
            lost = next((p for p in self._partitions if p not in partitions), None)
            if topic_error is None and lost is None:
                return partitions
            if self._clock.monotonic() - start_s >= _SETTLE_S:
                if topic_error is not None:
                    raise self._missing(*topic_error)
                assert lost is not None
                raise gone(lost, "any", _count(lost, partitions), self._cluster)
            hold_thread(0.2)

    def _missing(self, topic: str, error: Any) -> TidelogError:
        """The error of a topic that is not there: a topic that was read must not be made again."""
        refused = translated(error, f"topic {topic!r}", self._cluster)
        if not isinstance(refused, ObjectNotFoundError):  # no right to see it, or no leader
            return refused
        partition = next((p for p in self._partitions if p.topic == topic), None)
        if partition is not None:
            return gone(
                partition, "any", "no such topic: it was deleted while the job ran", self._cluster
            )
        return translated(
            error,
            f"topic {topic!r}",
            self._cluster,
            action="create the topic, or correct its name; but if the job has read from it before, "
            "bring that topic back: in a new one other messages have the offsets it goes on from",
            retry_safe=False,
        )

    def _find_bounds(self, partitions: list[TopicPartition]) -> None:
        """Where partitions begin and end; brokers that have just started may not know at once."""
        give_up = self._clock.monotonic() + self._connect_s
        ask = Offsets(self._discovering, self._cluster, _ANSWER_S)
        while True:
            try:
                self._starts = ask.first(self._start, partitions)
                self._ends = ask.ends(partitions) if self._stop is not None else {}
                return
            except StoreUnreachableError:
                if self._closed or self._clock.monotonic() >= give_up:
                    raise
                hold_thread(0.2)

    def _look(self) -> tuple[list[TopicPartition], Any]:
        """The partitions that there are, and a topic that is not, with the error."""
        partitions: list[TopicPartition] = []
        for topic in self._topics:
            try:
                answer = self._discovering.list_topics(topic, timeout=_SLICE_S).topics[topic]
            finally:
                self._discovering.poll(0)  # which calls `_noticed`
            if answer.error is not None:
                return partitions, (topic, answer.error)
            partitions += [TopicPartition(topic, number) for number in sorted(answer.partitions)]
        return partitions, None

    def _unreachable(self, error: Any, patience_s: float) -> Exception:
        """The reason for silence is what a connection has met, if that is known."""
        cause = self._trouble if self._trouble is not None else error
        failure = translated(cause, f"topic {self._topics[0]!r}", self._cluster)
        if not isinstance(failure, StoreUnreachableError):
            return failure
        return StoreUnreachableError(
            failure.what,
            expected=f"an answer within {patience_s:g} s",
            found=failure.found,
            action=f"{failure.action}; connect_s says how long a start waits",
        )


def _count(partition: TopicPartition, partitions: Sequence[TopicPartition]) -> str:
    of_topic = sum(p.topic == partition.topic for p in partitions)
    if not of_topic:
        return "no such topic among those of the source"
    return f"{of_topic} partition{'s' if of_topic > 1 else ''} of the topic: {MADE_AGAIN}"
