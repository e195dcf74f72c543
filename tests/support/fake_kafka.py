"""Kafka in memory: as much of brokers and of the client library as the sink uses.

Logs, transactions and the fencing of their ids behave as Kafka's do. Messages of a producer wait in
it until they are sent, and are lost with it. A test may look at, or break off, every call.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial, wraps
from itertools import islice
from random import Random
from types import SimpleNamespace
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import ConfigResource, NewPartitions, NewTopic

Method = TypeVar("Method", bound=Callable[..., Any])


@dataclass
class Entry:
    """A place in a partition's log."""

    value: bytes | None
    key: bytes | None = None
    headers: list[tuple[str, bytes | None]] = field(default_factory=list)
    timestamp: int = 0
    transaction: "Transaction | None" = None

    @property
    def committed(self) -> bool:
        return self.transaction is None or self.transaction.state == "committed"


@dataclass
class Transaction:
    state: str = "open"


@dataclass
class Partition:
    start: int = 0
    log: list[Entry] = field(default_factory=list)


@dataclass
class Owner:
    """What the coordinator knows of a transactional id."""

    epoch: int = 0
    open: Transaction | None = None


def failure(code: int, *, fatal: bool = False, retriable: bool = False, abort: bool = False) -> Any:
    return KafkaException(
        KafkaError(code, fatal=fatal, retriable=retriable, txn_requires_abort=abort)
    )


class FakeKafka:
    """Brokers, and a `library` that stands in for the module confluent_kafka."""

    def __init__(self, rng: Random | None = None) -> None:
        self.topics: dict[str, list[Partition]] = {}
        self.owners: dict[str, Owner] = {}
        self.queue_size = 1000
        self.longest_transaction_ms = 900_000
        """As `transaction.max.timeout.ms` of a broker."""
        self.rng = rng or Random(1)
        self.call: Callable[[str, Callable[[], Any]], Any] = lambda name, effect: effect()
        """Every call of the client goes through it."""
        self.library = SimpleNamespace(
            KafkaError=KafkaError,
            KafkaException=KafkaException,
            TopicPartition=TopicPartition,
            OFFSET_BEGINNING=-2,
            Producer=lambda config, logger=None: Producer(self, config),
            Consumer=lambda config, logger=None: Consumer(self),
            admin=SimpleNamespace(
                AdminClient=lambda config, logger=None: Admin(self),
                NewTopic=NewTopic,
                NewPartitions=NewPartitions,
                ConfigResource=ConfigResource,
            ),
        )

    def create(self, topic: str, partitions: int = 1) -> None:
        self.topics[topic] = [Partition() for _ in range(partitions)]

    def visible(self, topic: str, partition: int = 0) -> list[Entry]:
        """What a consumer sees with isolation.level=read_committed."""
        seen = []
        for entry in self.topics[topic][partition].log:
            if entry.transaction is not None and entry.transaction.state == "open":
                break
            if entry.committed:
                seen.append(entry)
        return seen

    def kept(self, topic: str) -> int:
        """Messages that were not deleted."""
        return sum(len(p.log) - p.start for p in self.topics.get(topic, ()))

    def end_transaction(self, owner: Owner, state: str) -> None:
        if owner.open is not None:
            owner.open.state = state
            owner.open = None


def called(method: Method) -> Method:
    """Makes it a call of the client, which goes through `FakeKafka.call`."""

    @wraps(method)
    def through(client: Any, *arguments: Any, **named: Any) -> Any:
        effect = partial(method, client, *arguments, **named)
        return client._brokers.call(method.__name__, effect)

    return through  # type: ignore[return-value]


class Producer:
    def __init__(self, brokers: FakeKafka, config: dict[str, Any]) -> None:
        self._brokers = brokers
        self._id = config.get("transactional.id", "")
        self._transaction_ms = config.get("transaction.timeout.ms", 0)
        self._epoch: int | None = None
        self._queue: list[tuple[str, int, Entry, Any]] = []
        self._reports: list[Callable[[], None]] = []
        self._in_transaction = False

    def __len__(self) -> int:
        return len(self._queue) + len(self._reports)

    @called
    def produce(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        *,
        headers: Any = None,
        partition: int = -1,
        timestamp: int = 0,
        on_delivery: Any = None,
    ) -> None:
        if self._brokers.rng.random() < 0.2:
            self._send_some(self._brokers.rng.randrange(4))
        if len(self._queue) >= self._brokers.queue_size:
            raise BufferError("Local: Queue full")
        if self._id and not self._in_transaction:
            raise failure(KafkaError._STATE)
        entry = Entry(value, key, list(headers or ()), timestamp)
        self._queue.append((topic, partition, entry, on_delivery))

    @called
    def poll(self, timeout: float = 0) -> int:
        return self._serve(self._brokers.rng.random() < 0.5)

    @called
    def flush(self, timeout: float = 0) -> int:
        return self._serve(True)

    def purge(self) -> None:
        self._queue.clear()

    @called
    def init_transactions(self, timeout: float) -> None:
        if self._transaction_ms > self._brokers.longest_transaction_ms:
            raise failure(KafkaError.INVALID_TRANSACTION_TIMEOUT)
        owner = self._brokers.owners.setdefault(self._id, Owner())
        self._brokers.end_transaction(owner, "aborted")
        owner.epoch += 1
        self._epoch = owner.epoch

    @called
    def begin_transaction(self) -> None:
        if self._epoch is None or self._in_transaction:
            raise failure(KafkaError._STATE)
        self._in_transaction = True

    @called
    def commit_transaction(self, timeout: float) -> None:
        owner = self._current()
        self._serve(True)
        self._brokers.end_transaction(owner, "committed")
        self._in_transaction = False

    @called
    def abort_transaction(self, timeout: float) -> None:
        if not self._in_transaction:
            raise failure(KafkaError._STATE)
        self._in_transaction = False
        self._brokers.end_transaction(self._current(), "aborted")

    def _current(self) -> Owner:
        owner = self._brokers.owners[self._id]
        if owner.epoch != self._epoch:
            raise failure(KafkaError._FENCED, fatal=True)
        return owner

    def _serve(self, everything: bool) -> int:
        """Send what waits, or a part of it, and report it."""
        self._send_some(len(self._queue) if everything else self._brokers.rng.randrange(4))
        reports, self._reports = self._reports, []
        for each in reports:
            each()
        return len(self._queue)

    def _send_some(self, count: int) -> None:
        """What the client does of itself, in the background."""
        sent, self._queue = self._queue[:count], self._queue[count:]
        for topic, number, entry, report in sent:
            self._send(topic, number, entry, report)

    def _send(self, topic: str, number: int, entry: Entry, report: Any) -> None:
        partitions = self._brokers.topics.get(topic)
        if partitions is None or number >= len(partitions):
            if self._id:
                raise failure(KafkaError.UNKNOWN_TOPIC_OR_PART, abort=True)
            error = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
            self._reports.append(lambda: report(error, Delivered(topic, -1, entry)))
            return
        if self._id:
            owner = self._current()
            owner.open = owner.open or Transaction()
            entry.transaction = owner.open
        log = partitions[max(number, 0)].log
        log.append(entry)
        offset = len(log) - 1
        if report is not None:
            self._reports.append(lambda: report(None, Delivered(topic, offset, entry)))


class Delivered:
    def __init__(self, topic: str, offset: int, entry: Entry) -> None:
        self.topic, self.offset = lambda: topic, lambda: offset
        self.error, self.value = lambda: None, lambda: entry.value
        self.headers = lambda: list(entry.headers) or None
        self._entry = entry

    def __len__(self) -> int:
        return len(self._entry.value or b"")


class NoMessage:
    def __init__(self, code: int, offset: int) -> None:
        self.error, self.offset = lambda: KafkaError(code), lambda: offset


class Consumer:
    def __init__(self, brokers: FakeKafka) -> None:
        self._brokers = brokers
        self._messages: Iterator[Any] = iter(())

    @called
    def get_watermark_offsets(self, position: Any, timeout: float) -> tuple[int, int]:
        partition = self._partition(position)
        return partition.start, len(partition.log)

    @called
    def assign(self, positions: list[Any]) -> None:
        (position,) = positions
        self._messages = self._read(position)

    @called
    def consume(self, most: int, timeout: float) -> list[Any]:
        return list(islice(self._messages, min(most, self._brokers.rng.randrange(1, 30))))

    def unassign(self) -> None:
        self._messages = iter(())

    def close(self) -> None:
        self.unassign()

    def _partition(self, position: Any) -> Partition:
        partitions: list[Partition] = self._brokers.topics.get(position.topic, [])
        if position.partition >= len(partitions):
            raise failure(KafkaError._UNKNOWN_PARTITION)
        return partitions[position.partition]

    def _read(self, position: Any) -> Iterator[Any]:
        partition = self._partition(position)
        offset = partition.start if position.offset == -2 else position.offset
        if not partition.start <= offset <= len(partition.log):
            yield NoMessage(KafkaError._AUTO_OFFSET_RESET, offset)
            return
        while True:
            while offset < len(partition.log):
                entry = partition.log[offset]
                if entry.transaction is not None and entry.transaction.state == "open":
                    break
                offset += 1
                if entry.committed:
                    yield Delivered(position.topic, offset - 1, entry)
            yield NoMessage(KafkaError._PARTITION_EOF, offset)


def asked(method: Callable[[Any, Any], None]) -> Any:
    """Makes it a request of an administrator about one thing; failures are in its answer."""

    @wraps(method)
    def through(client: Any, things: list[Any], **_: Any) -> "dict[Any, Future[None]]":
        (thing,) = things
        answer: Future[None] = Future()
        try:
            client._brokers.call(method.__name__, partial(method, client, thing))
            answer.set_result(None)
        except KafkaException as error:
            answer.set_exception(error)
        return {getattr(thing, "topic", thing): answer}

    return through


class Admin:
    def __init__(self, brokers: FakeKafka) -> None:
        self._brokers = brokers

    def poll(self, timeout: float) -> None:
        """Connections in memory meet nothing."""

    @called
    def list_topics(self, timeout: float) -> Any:
        return SimpleNamespace(
            topics={
                name: SimpleNamespace(error=None, partitions=dict(enumerate(partitions)))
                for name, partitions in self._brokers.topics.items()
            }
        )

    @asked
    def create_topics(self, new: Any) -> None:
        if new.topic in self._brokers.topics:
            raise failure(KafkaError.TOPIC_ALREADY_EXISTS)
        self._brokers.create(new.topic, new.num_partitions)

    @asked
    def describe_configs(self, resource: Any) -> None:
        """Brokers of whose topics nobody may see the settings."""
        raise failure(KafkaError.TOPIC_AUTHORIZATION_FAILED)

    @asked
    def create_partitions(self, more: Any) -> None:
        partitions = self._brokers.topics[more.topic]
        if more.new_total_count <= len(partitions):
            raise failure(KafkaError.INVALID_PARTITIONS)
        partitions.extend(Partition() for _ in range(more.new_total_count - len(partitions)))

    @asked
    def delete_records(self, position: Any) -> None:
        partition = self._brokers.topics[position.topic][position.partition]
        assert position.offset <= len(partition.log)
        partition.start = max(partition.start, position.offset)
