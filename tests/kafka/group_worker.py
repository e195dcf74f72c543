"""One consumer of a group: runs the program that docs/guides/own-loop.md prints, after a line that
says so.

With `--to-the-end` it ends when it has read what the topic has now.
"""

import sys
from contextlib import suppress
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from tests.support.documentation import BLOCKS
from tidelog.library import partitions

_SESSION_MS = 6_000
"""The shortest that brokers allow: so long a group waits for a member that was killed."""


class Cooperative(Consumer):
    """Only what moves is assigned and taken."""

    def assign(self, partitions: list[TopicPartition]) -> None:
        self.incremental_assign(partitions)


class ToTheEnd(Consumer):
    """A consumer whose `poll` raises KeyboardInterrupt at the end of all its partitions."""

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(settings | {"enable.partition.eof": True})
        self.read: set[int] = set()

    def poll(self, timeout: float = -1) -> Message | None:
        message = super().poll(timeout)
        if message is None or message.error() is None:
            return message
        assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
        self.read.add(message.partition())
        if self.read == {each.partition for each in self.assignment()}:
            raise KeyboardInterrupt
        return None


def main(bootstrap: str, group: str, url: str, topic: str, strategy: str) -> None:
    """Count until interrupted."""
    kinds = {"cooperative-sticky": Cooperative, "range": Consumer, "--to-the-end": ToTheEnd}
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        "session.timeout.ms": _SESSION_MS,
        "heartbeat.interval.ms": 500,
        "partition.assignment.strategy": "range" if strategy == "--to-the-end" else strategy,
    }
    partitions._INTERVAL_S = 0.2  # type: ignore[misc]
    program: dict[str, Any] = {}
    exec(BLOCKS["own-loop 4"], program)
    # Before it says so: interrupted in there, the client library raises a TypeError.
    consumer = kinds[strategy](settings)
    print("begins", flush=True)
    with suppress(KeyboardInterrupt):
        program["count_orders"](consumer, url, topic)


if __name__ == "__main__":
    main(*sys.argv[1:])
