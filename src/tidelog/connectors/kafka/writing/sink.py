"""Kafka as a sink: exactly once through a staging topic, or at least once."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tidelog.connectors.kafka.client import Cluster
from tidelog.connectors.kafka.dead_letters import DeadLetterTopic, OnError, check_policy
from tidelog.connectors.kafka.writing.messages import Format, Headers, Messages
from tidelog.connectors.kafka.writing.outbox import Outbox
from tidelog.connectors.kafka.writing.producing import FIXED
from tidelog.connectors.kafka.writing.targets import Targets
from tidelog.connectors.kafka.writing.topics import Topics
from tidelog.connectors.kafka.writing.writer import StagingWriter
from tidelog.errors import require
from tidelog.ids import CheckpointId
from tidelog.runtime.sink import Sink, SinkContext, SinkWriter
from tidelog.runtime.user_code import each


class KafkaSink(Sink):
    """Sends records to topics of Kafka.

    `topic` is a name or a function of the record. `key` and `value` are "json", "text", "raw" or
    functions of the record that return bytes, text or None; `headers` returns pairs or a mapping,
    `partition` a number, `timestamp` milliseconds. Exactly once, records are visible to consumers
    with `isolation.level=read_committed` when their checkpoint is complete, and wait in topics and
    under transactional ids that begin with `prefix`, the job's and the sink's name. With
    `exactly_once=False` they are visible at once, and again after a failure. `create` is the
    number of partitions of a topic that is missing; without it that is an error. A record that a
    topic would refuse fails the job before a checkpoint has it, as far as that can be known; one
    that brokers refuse later fails each commit, or, as `on_refused` says, is left out ("skip") or
    moved to a `DeadLetterTopic`, counted and logged. `client` has settings of librdkafka. Raises
    ConfigError.
    """

    def __init__(
        self,
        topic: str | Callable[[Any], str],
        *,
        bootstrap: str | Sequence[str],
        key: Format | None = None,
        value: Format = "json",
        headers: Callable[[Any], Headers] | None = None,
        partition: Callable[[Any], int] | None = None,
        timestamp: Callable[[Any], int] | None = None,
        exactly_once: bool = True,
        prefix: str = "tidelog",
        create: int | None = None,
        on_refused: OnError = "fail",
        client: Mapping[str, Any] | None = None,
    ) -> None:
        require("prefix", repr(prefix), bool(prefix), "a name")
        require("create", create, create is None or create > 0, "at least 1 partition, or None")
        self._messages = Messages(topic, key, value, headers, partition, timestamp)
        self._cluster = Cluster(bootstrap, client, FIXED)
        settings = client or {}
        self._largest_message = int(settings.get("message.max.bytes", 0))
        self._exactly_once = exactly_once
        self._prefix = prefix
        self._create = create
        check_policy("on_refused", on_refused)
        self._on_refused = on_refused
        codec = settings.get("compression.type", settings.get("compression.codec", "none"))
        self._compressed = str(codec) != "none"

    def open(self, context: SinkContext) -> SinkWriter:
        """Raises ObjectNotFoundError without the topic, and other errors of `tidelog.errors`."""
        cluster, messages = self._cluster, self._messages
        targets = Targets(cluster, self._create, compressed=self._compressed)
        if messages.fixed_topic is not None:
            targets.add(messages.fixed_topic)
        if self._exactly_once and isinstance(self._on_refused, DeadLetterTopic):
            targets.add(self._on_refused.topic)
        targets.check()

        def staging() -> StagingWriter:
            largest = max(self._largest_message, targets.largest())
            topics = Topics(cluster, self._prefix, context, largest)
            return StagingWriter(messages, targets, topics, cluster, context, self._on_refused)

        return staging() if self._exactly_once else DirectWriter(cluster, messages, staging)


class DirectWriter(SinkWriter):
    """Sends records to their topics at once; a checkpoint waits until they were delivered."""

    def __init__(
        self, cluster: Cluster, messages: Messages, staging: Callable[[], StagingWriter]
    ) -> None:
        self._messages = messages
        self._staging = staging
        self._outbox = Outbox(cluster)

    def recover(self, transactions: Sequence[bytes]) -> None:
        """Commit what the sink pre-committed when it still was exactly once."""
        if transactions:
            writer = self._staging()
            try:
                writer.recover(transactions)
            finally:
                writer.close()

    def write(self, records: Sequence[Any]) -> None:
        """Send records; raises UserFunctionError for one that does not fit."""
        for message in each(self._messages.of, records):
            self._outbox.add(message)

    def full(self) -> bool:
        """Whether what was sent and not delivered has reached its limit."""
        return self._outbox.full()

    def make_room(self) -> None:
        """Wait until half of it was delivered."""
        self._outbox.make_room()

    def pre_commit(self, checkpoint: CheckpointId) -> None:
        """Wait until every record was delivered."""
        self._outbox.flush()

    def close(self) -> None:
        """Release the client."""
        self._outbox.close()
