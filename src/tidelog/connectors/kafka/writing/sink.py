"""Kafka as a sink: exactly once through a staging topic, or at least once.

Invariants of exactly once: a record is sent to the staging topic at once, and to its own topic by a
commit alone; older starts have been fenced before anything is staged; staged records are deleted
when they were moved, or when no retained checkpoint names them.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from tidelog.connectors import transactions as tokens
from tidelog.connectors.arguments import typed
from tidelog.connectors.kafka.client import Cluster, DeadLetterTopic, OnError, check_policy
from tidelog.connectors.kafka.writing.messages import Format, Headers, Message, Messages
from tidelog.connectors.kafka.writing.mover import TRANSACTION_MS, Mover
from tidelog.connectors.kafka.writing.producing import Outbox
from tidelog.connectors.kafka.writing.staging import StagedRange, StagingStart, own_ranges, wrapped
from tidelog.connectors.kafka.writing.staging_topics import StagingTopics
from tidelog.connectors.kafka.writing.topics import Targets
from tidelog.connectors.transactions import TransactionId
from tidelog.errors import require
from tidelog.ids import CheckpointId
from tidelog.runtime.sink import Sink, SinkContext, SinkWriter
from tidelog.runtime.user_code import map_lazily

_FIXED: Final = {
    **dict.fromkeys(("acks", "enable.idempotence", "message.timeout.ms"), "exactly_once="),
    **dict.fromkeys(("delivery.timeout.ms", "isolation.level", "retries"), "exactly_once="),
    **dict.fromkeys(("message.send.max.retries", "delivery.report.only.error"), "exactly_once="),
    **dict.fromkeys(("transactional.id", "group.id"), "prefix="),
    **dict.fromkeys(
        ("enable.auto.commit", "auto.offset.reset", "enable.partition.eof"), "what tidelog sets"
    ),
}
"""Settings that cannot be passed, and what to use instead."""


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

    @typed
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
        self.messages = Messages(topic, key, value, headers, partition, timestamp)
        settings = dict(client or {})
        limit = str(settings.pop("transaction.timeout.ms", TRANSACTION_MS))
        fits = limit.isdecimal() and int(limit) >= 1000
        require("transaction.timeout.ms in client=", limit, fits, "1000 milliseconds or more")
        self.transaction_ms = int(limit)
        self.cluster = Cluster(bootstrap, settings, _FIXED)
        largest = str(settings.get("message.max.bytes", 0))
        require("message.max.bytes in client=", largest, largest.isdecimal(), "a number of bytes")
        self.largest_message = int(largest)
        self._exactly_once = exactly_once
        self.prefix = prefix
        self._create = create
        check_policy("on_refused", on_refused)
        self.on_refused = on_refused
        codec = settings.get("compression.type", settings.get("compression.codec", "none"))
        self._compressed = str(codec) != "none"

    def open(self, context: SinkContext) -> SinkWriter:
        """Raises ObjectNotFoundError without the topic, and other errors of `tidelog.errors`."""
        targets = Targets(self.cluster, self._create, compressed=self._compressed)
        if self.messages.fixed_topic is not None:
            targets.add(self.messages.fixed_topic)
        if self._exactly_once and isinstance(self.on_refused, DeadLetterTopic):
            targets.add(self.on_refused.topic)
        targets.check()
        staging = partial(KafkaStagingWriter, self, targets, context)
        return staging() if self._exactly_once else DirectWriter(self, targets, staging)


class _OutboxWriter(SinkWriter):
    """Sends messages in the background, as long as there is room for them."""

    def __init__(self, sink: KafkaSink) -> None:
        self._sink = sink
        self._outbox = Outbox(sink.cluster)

    def full(self) -> bool:
        return self._outbox.full()

    def make_room(self) -> None:
        self._outbox.make_room()

    def close(self) -> None:
        self._outbox.close()


class DirectWriter(_OutboxWriter):
    """Sends records to their topics at once; a checkpoint waits until they were delivered."""

    def __init__(
        self, sink: KafkaSink, targets: Targets, staging: Callable[[], "KafkaStagingWriter"]
    ) -> None:
        super().__init__(sink)
        self._targets = targets
        self._staging = staging
        self._waiting: list[Message] = []
        """Messages that wait until their topics and partitions are known, or made."""

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
        messages = map_lazily(self._sink.messages.of, records)
        if self._sink.messages.one_place:
            for message in messages:
                self._outbox.add(message)
            return
        self._waiting += messages
        if self._targets.know(self._waiting):
            self._send_waiting()

    def full(self) -> bool:
        return bool(self._waiting) or super().full()

    def make_room(self) -> None:
        """As `Outbox.make_room`; raises ObjectNotFoundError without a topic, UserFunctionError
        without a partition.
        """
        self._send_waiting()
        super().make_room()

    def pre_commit(self, checkpoint: CheckpointId) -> None:
        self._send_waiting()
        self._outbox.flush()

    def _send_waiting(self) -> None:
        self._targets.check()
        messages, self._waiting = self._waiting, []
        for message in messages:
            self._outbox.add(message)


class KafkaStagingWriter(_OutboxWriter):
    """Stages records and moves them; raises errors of `tidelog.errors`."""

    def __init__(self, sink: KafkaSink, targets: Targets, me: SinkContext) -> None:
        super().__init__(sink)
        self._targets = targets
        self._context = me
        self._start = StagingStart(me.generation, me.attempt)
        largest = max(sink.largest_message, targets.largest())
        self._topics = StagingTopics(sink.cluster, sink.prefix, me, largest)
        self._partitions = self._topics.make(me.parallelism)
        self._movers: dict[int, Mover] = {}
        self._staged = self._pre_committed = 0
        """How many records of this start were staged, and how many are in a transaction."""
        self._referenced: list[StagedRange] = []
        """What checkpoints name of our partition that other starts have staged."""

    def recover(self, transactions: Sequence[bytes]) -> None:
        """Fence older starts, commit these, delete what no retained checkpoint names."""
        pending = []
        for staged in map(self._decoded, transactions):
            if staged.topic == self._topics.staging:
                pending.append(staged)
            elif not self._topics.was_moved(staged):
                self._mover(self._context.subtask).move(staged)  # raises what is to be done
        numbers = {staged.partition for staged in pending}
        answered = set(filter(self._context.recovers_for, range(self._partitions)))
        for partition in sorted(numbers | answered):
            # What is staged after this was staged by a successor.
            end = self._topics.end(self._topics.staging, partition)
            self._mover(partition).begin()
            self._mover(partition).check_begins(self._context)
            self._check_complete(partition)
            for staged in pending:
                if staged.partition == partition:
                    self._mover(partition).move(staged)
            self._remove_left_over(partition, end, transactions)
            if partition != self._context.subtask:
                self._movers.pop(partition).close()

    def write(self, records: Sequence[Any]) -> None:
        """Send records to the staging topic; raises UserFunctionError for one that does not fit."""
        for message in map_lazily(self._sink.messages.of, records):
            self._targets.admit(message)
            partition = self._context.subtask
            staged = wrapped(message, self._start, self._staged, self._topics.staging, partition)
            self._outbox.add(staged)
            self._staged += 1

    def pre_commit(self, checkpoint: CheckpointId) -> bytes | None:
        if self._staged == self._pre_committed:
            return None
        self._targets.check()
        self._outbox.flush()
        assert self._outbox.first_offset is not None
        staged = StagedRange(
            self._topics.staging,
            self._context.subtask,
            self._start,
            self._pre_committed,
            self._staged - self._pre_committed,
            self._outbox.first_offset,
            self._outbox.next_offset,
        )
        self._pre_committed = self._staged
        self._outbox.first_offset = None
        return tokens.encode(staged)

    def commit(self, transaction: bytes) -> None:
        """Move a transaction's records to their topics, in transactions of Kafka."""
        staged = self._decoded(transaction)
        mover = self._mover(staged.partition)
        mover.move(staged)
        if (
            self._context.retained_transactions is not None
            and staged.partition == self._context.subtask
        ):
            mover.cut(staged.end, self._referenced)

    def close(self) -> None:
        """Release the clients; what was not committed waits in the staging topic."""
        super().close()
        for mover in self._movers.values():
            mover.close()
        self._topics.close()

    def _mover(self, partition: int) -> Mover:
        mover = self._movers.get(partition)
        if mover is None:
            mover = Mover(
                self._topics,
                partition,
                self._start,
                self._sink.on_refused,
                self._sink.transaction_ms,
            )
            self._movers[partition] = mover
        return mover

    def _check_complete(self, partition: int) -> None:
        """Whether the topics have what was moved: a copy of an earlier day lacks some of it."""
        if self._context.retained_transactions is not None:
            mover, absent = self._mover(partition), list[TransactionId]()
            for token, checkpoint in self._context.committed_transactions.items():
                for staged in own_ranges(self._topics.staging, partition, [token]):
                    if mover.lacks(staged):
                        absent.append(staged.id(self._context.name, checkpoint))
            tokens.check_there(absent)

    def _remove_left_over(self, partition: int, end: int, transactions: Sequence[bytes]) -> None:
        retained = self._context.retained_transactions
        if retained is None:
            return
        ranges = own_ranges(self._topics.staging, partition, (*retained, *transactions))
        mover = self._mover(partition)
        mover.forget_all_but({staged.start for staged in ranges})
        mover.cut(end, ranges)
        if partition == self._context.subtask:
            self._referenced = ranges

    def _decoded(self, transaction: bytes) -> StagedRange:
        return tokens.decode(self._context.name, StagedRange, transaction)
