"""The broker that all Kafka tests of a run share, and what they do to topics past tidelog."""

import fcntl
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from tests.support.kafka_broker import Broker, admin_client, kafka_jars
from tests.support.maven import JarsUnavailableError
from tidelog.connectors.kafka.client import library
from tidelog.errors import ConfigError

_GIVE_UP_S = 60
_numbers = count()


class Topics:
    """Makes topics in a cluster and reads and writes them with Kafka's own clients."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.admin = admin_client(bootstrap)

    def new(self, partitions: int = 1, name: str | None = None, **config: str) -> str:
        """A new topic, by a name that no other test has; dots of settings are underscores here."""
        name = name or f"topic-{os.getpid()}-{next(_numbers)}"
        settings = {key.replace("_", "."): value for key, value in config.items()}
        kind = library().admin.NewTopic
        topic = kind(name, num_partitions=partitions, replication_factor=1, config=settings)
        self.admin.create_topics([topic])[name].result(_GIVE_UP_S)
        while name not in self.admin.list_topics(timeout=_GIVE_UP_S).topics:
            pass  # made, and not known to the broker yet
        return name

    def grow(self, topic: str, partitions: int) -> None:
        more = library().admin.NewPartitions(topic, partitions)
        self.admin.create_partitions([more])[topic].result(_GIVE_UP_S)

    def delete(self, topic: str) -> None:
        self.admin.delete_topics([topic])[topic].result(_GIVE_UP_S)

    def drop_before(self, topic: str, partition: int, offset: int) -> None:
        """Remove what is before an offset, as retention does."""
        until = library().TopicPartition(topic, partition, offset)
        for done in self.admin.delete_records([until]).values():
            done.result(_GIVE_UP_S)

    def write(self, topic: str, values: Iterable[Any], **message: Any) -> None:
        """Write values, texts or bytes, as one message each; `message` is what else is in it."""
        writer = library().Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 1})
        for value in values:
            writer.produce(topic, value, **message)
            writer.poll(0)
        assert writer.flush(_GIVE_UP_S) == 0

    def read(self, topic: str, expected: int, *, committed: bool = True) -> list[Any]:
        """The first messages of a topic, of committed transactions alone unless said otherwise."""
        with self._reader(topic, committed) as reader:
            return [_next(reader) for _ in range(expected)]

    def read_all(self, topic: str) -> list[Any]:
        """All messages that are in a topic of one partition, and in no transaction, now."""
        with self._reader(topic, committed=False) as reader:
            _, end = reader.get_watermark_offsets(library().TopicPartition(topic, 0))
            return [_next(reader) for _ in range(end)]

    def read_committed(self, topic: str) -> list[Any]:
        """All messages of committed transactions that are in a topic of one partition now."""
        messages = []
        with self._reader(topic, committed=True, ends=True) as reader:
            while (message := reader.poll(_GIVE_UP_S)).error() is None:
                messages.append(message)
        return messages

    @contextmanager
    def _reader(self, topic: str, committed: bool, ends: bool = False) -> Iterator[Any]:
        """A consumer at the beginning of all partitions."""
        reader = library().Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "tests",
                "enable.auto.commit": False,
                "enable.partition.eof": ends,
                "isolation.level": "read_committed" if committed else "read_uncommitted",
            }
        )
        partitions = self.admin.list_topics(topic, _GIVE_UP_S).topics[topic].partitions
        reader.assign([library().TopicPartition(topic, each, 0) for each in partitions])
        try:
            yield reader
        finally:
            reader.close()


def _next(reader: Any) -> Any:
    message = reader.poll(_GIVE_UP_S)
    assert message is not None, "no further message came"
    assert message.error() is None, message.error()
    return message


def reason_without() -> str | None:
    """Why there can be no broker here; None when there can."""
    try:
        library()
        Broker(Path("unused"))
    except (ConfigError, JarsUnavailableError) as error:
        return str(error)
    return None


def kept_classes() -> Path:
    """Makes what lets brokers start in less time; returns where their jars are."""
    with tempfile.TemporaryDirectory() as directory:
        Broker(Path(directory) / "kafka").keep_classes()
    return kafka_jars()


@contextmanager
def shared_broker(directory: Path) -> Iterator[str]:
    """The address of a broker that all processes share that use this directory at a time.

    The first one starts it, and ends it when the others have left.
    """
    directory.mkdir(parents=True, exist_ok=True)
    address = directory / "address"
    with (directory / "first").open("w") as first, (directory / "users").open("w") as users:
        fcntl.flock(first, fcntl.LOCK_EX)
        if address.exists():
            fcntl.flock(users, fcntl.LOCK_SH)
            fcntl.flock(first, fcntl.LOCK_UN)
            yield address.read_text()
            return
        with Broker(directory / f"broker-{os.getpid()}") as broker:
            address.write_text(broker.bootstrap)
            fcntl.flock(first, fcntl.LOCK_UN)
            try:
                yield broker.bootstrap
            finally:
                fcntl.flock(first, fcntl.LOCK_EX)  # who comes now starts one of their own
                address.unlink()
                fcntl.flock(first, fcntl.LOCK_UN)
                fcntl.flock(users, fcntl.LOCK_EX)
