"""Messages on their way to Kafka, in order and none twice.

Invariants: what was added and not delivered is bounded, but for a task's last buffer; a message
is given up by Kafka's client only for a reason that lasts, and then nothing more is delivered.
"""

from collections import deque
from typing import Any, Final

from tidelog.connectors.kafka import client
from tidelog.connectors.kafka.client import Cluster
from tidelog.connectors.kafka.writing.messages import Message
from tidelog.connectors.kafka.writing.producing import PATIENCE_S, now, produce, producer
from tidelog.errors import StoreUnreachableError, TidelogError

MOST_BYTES: Final = 32 << 20
MOST_MESSAGES: Final = 50_000
_OVERHEAD: Final = 200
"""Bytes that a message costs beside its value, about."""


class Outbox:
    """A producer and what it has not delivered; used by one thread at a time."""

    def __init__(self, cluster: Cluster, patience_s: float = PATIENCE_S) -> None:
        self._cluster = cluster
        # A message that waits for the cluster stays in line: one that was given up would have to
        # be sent again behind its successors.
        self._producer = producer(cluster, {"message.timeout.ms": 0})
        self._patience_s = patience_s
        self._overflow: deque[Message] = deque()
        """What the client had no room for."""
        self._bytes = 0
        self._failed: TidelogError | None = None
        self.first_offset: int | None = None
        """Offsets of the messages delivered since `forget_offsets`, for one partition's outbox."""
        self.next_offset = 0

    def add(self, message: Message) -> None:
        """Send a message soon; never waits. Raises what an earlier one failed of."""
        if self._failed is not None:
            raise self._failed
        if self._overflow:
            self._overflow.append(message)
            return
        try:
            self._produce(message)
        except BufferError:
            self._overflow.append(message)

    def full(self) -> bool:
        """Whether `make_room` is due."""
        waits = self._bytes > MOST_BYTES or len(self._producer) > MOST_MESSAGES
        return waits or bool(self._overflow)

    def make_room(self) -> None:
        """Wait until half of the room is free; raises StoreUnreachableError, and as `flush`."""
        self._wait(lambda: not self._overflow and self._bytes <= MOST_BYTES // 2)

    def flush(self) -> None:
        """Wait until every message was delivered.

        Raises StoreUnreachableError when that takes too long: they stay in line, and the next call
        goes on. Any other error lasts: this outbox delivers nothing more.
        """
        self._wait(lambda: not self._overflow and len(self._producer) == 0)

    def forget_offsets(self) -> None:
        """Begin a new range of offsets."""
        self.first_offset = None

    def close(self) -> None:
        """Give up what was not delivered."""
        self._overflow.clear()
        self._producer.purge()
        self._producer.poll(0)

    def _produce(self, message: Message) -> None:
        value = message.value
        try:
            produce(self._producer, message, on_delivery=self._delivered)
        except client.library().KafkaException as error:
            raise self._failure(error.args[0], message.topic) from error
        self._bytes += _OVERHEAD + (0 if value is None else len(value))

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self._failure(error, message.topic())
            return
        self._bytes -= _OVERHEAD + len(message)
        offset = message.offset()
        if self.first_offset is None:
            self.first_offset = offset
        self.next_offset = offset + 1

    def _wait(self, done: Any) -> None:
        deadline = now() + self._patience_s
        while True:
            self._producer.poll(0)
            while self._overflow and self._failed is None:
                try:
                    self._produce(self._overflow[0])
                except BufferError:
                    break
                self._overflow.popleft()
            if self._failed is not None:
                raise self._failed
            if done():
                return
            if now() > deadline:
                raise StoreUnreachableError(
                    f"messages to {self._cluster}",
                    expected=f"to be delivered within {self._patience_s:.0f} seconds",
                    found=f"{len(self._producer) + len(self._overflow)} that are not",
                    action="check that the brokers run and that enough replicas are in sync",
                )
            self._producer.flush(0.1)

    def _failure(self, error: Any, topic: str) -> TidelogError:
        """Keep the first error: those after it follow from it."""
        if self._failed is None:
            self._failed = client.translated(error, f"a message to topic {topic!r}", self._cluster)
        return self._failed
