"""Messages on their way to Kafka, and the clients that send and read them.

Invariants: an outbox keeps order and sends nothing twice; what was added and not delivered is
bounded, but for a task's last buffer; a message is given up by Kafka's client only for a reason
that lasts, and then nothing more is delivered.
"""

from collections import deque
from collections.abc import Callable
from threading import Event
from typing import Any, Final, TypeVar

from tidelog.connectors.kafka import client
from tidelog.connectors.kafka.client import BY_HAND, Cluster
from tidelog.connectors.kafka.writing.messages import Message
from tidelog.connectors.outside import answered, bounded
from tidelog.effects import SystemClock, hold_thread
from tidelog.errors import ConfigError, StoreUnreachableError, TidelogError

T = TypeVar("T")

PATIENCE_S: Final = 60.0
"""How long a call may wait for the cluster."""
MOST_BYTES: Final = 32 << 20
MOST_MESSAGES: Final = 50_000

now: Final = SystemClock().monotonic
"""Seconds, for calls that wait in a thread."""

_OVERHEAD: Final = 200
"""Bytes that a message costs beside its value, about."""
_SOON_BACK: Final = {"reconnect.backoff.max.ms": 1_000}
"""Kafka's client would wait for ten seconds before it looks for a broker again."""
_PASSING: Final = (
    *("NOT_LEADER_FOR_PARTITION", "LEADER_NOT_AVAILABLE", "OFFSET_NOT_AVAILABLE", "_TRANSPORT"),
    *("REPLICA_NOT_AVAILABLE", "UNKNOWN_LEADER_EPOCH", "FENCED_LEADER_EPOCH", "_ALL_BROKERS_DOWN"),
    *("_TIMED_OUT", "_RESOLVE"),
)
"""What a cluster answers while a broker comes back."""
_PAUSE_S: Final = 0.1
_FIRST_S: Final = 3.0
"""How long the first try waits for an answer; then the log has what is waited for."""
LATE_S: Final = 5.0
"""How much longer the client may take than it was told."""


def patiently(ask: Callable[[float], T | None], what: str, cluster: Cluster) -> T | None:
    """The answer of a call that takes so many seconds at most, asked again while a broker comes
    back, and waited for longer each time; None: there was none. Raises TidelogErrors.
    """

    def answer() -> T | None:
        give_up, limit_s = now() + PATIENCE_S - LATE_S, _FIRST_S
        while True:
            try:
                found = ask(limit_s)
            except client.library().KafkaException as error:
                if error.args[0].name() not in _PASSING or now() > give_up:
                    raise client.translated(error.args[0], what, cluster) from error
                found = None
            if found is not None or now() > give_up:
                return found
            hold_thread(_PAUSE_S)
            limit_s = min(2 * limit_s, max(_FIRST_S, give_up - now()))

    return bounded(f"{what} in {cluster}", PATIENCE_S, answer, say_s=_FIRST_S)


def producer(cluster: Cluster, settings: dict[str, Any]) -> Any:
    """A producer that keeps order and sends nothing twice."""
    return cluster.producer(
        {
            # Java's choice of a partition for a key, so that all writers of a topic agree.
            "partitioner": "murmur2_random",
            "linger.ms": 20,
            "enable.idempotence": True,
            **_SOON_BACK,
            **settings,
        }
    )


def produce(client: Any, message: Message, **more: Any) -> None:
    """Hand a message to a producer; raises BufferError when it has no room for it."""
    client.produce(
        message.topic,
        message.value,
        message.key,
        headers=message.headers,
        partition=message.partition,
        timestamp=message.timestamp,
        **more,
    )


def check_fits(client: Any, message: Message, cluster: Cluster) -> None:
    """After a producer has refused a message for want of room: raises ConfigError when it is empty,
    so that waiting would never make room.
    """
    if len(client) == 0:
        raise ConfigError(
            f"client= of what writes to {cluster}",
            expected="a queue of the producer (queue.buffering.max.kbytes, "
            "queue.buffering.max.messages) with room for each message",
            found=f"none for one of {len(message.value or b'')} bytes for topic {message.topic!r}",
            action="raise them above the size of the largest message, or leave them out",
        )


def reader(cluster: Cluster, group: str) -> Any:
    """A consumer of partitions that are assigned by hand; the group is one in name only."""
    return cluster.consumer(
        {
            "group.id": group,
            **BY_HAND,
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 20,
            **_SOON_BACK,
        }
    )


class Outbox:
    """A producer and what it has not delivered; used by one thread at a time."""

    def __init__(self, cluster: Cluster, what: str = "a message to topic") -> None:
        self._cluster = cluster
        self._what = what
        # A message that waits for the cluster stays in line: one that was given up would have to
        # be sent again after its successors.
        self._producer = producer(cluster, {"message.timeout.ms": 0})
        self._patience_s = PATIENCE_S
        self._overflow: deque[Message] = deque()
        """What the client had no room for."""
        self._bytes = 0
        self._failed: TidelogError | None = None
        self.first_offset: int | None = None
        """Where all messages go to one partition: the offset of the first one delivered since the
        outbox's user has set this to None."""
        self.next_offset = 0
        """One more than the offset of the last message delivered."""

    def add(self, message: Message) -> None:
        """Send a message soon; never waits. Raises what an earlier one failed of."""
        if self._failed is not None:
            raise self._failed
        if not self._overflow:
            try:
                return self._produce(message)
            except BufferError:
                pass
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

    def close(self) -> None:
        """Give up what was not delivered."""
        self._overflow.clear()
        self._producer.purge()
        self._producer.poll(0)

    def _produce(self, message: Message) -> None:
        try:
            produce(self._producer, message, on_delivery=self._delivered)
        except client.library().KafkaException as error:
            raise self._failure(error.args[0], message.topic) from error
        self._bytes += _OVERHEAD + len(message.value or b"")

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self._failure(error, message.topic())
            return
        self._bytes -= _OVERHEAD + len(message)
        offset = message.offset()
        if self.first_offset is None:
            self.first_offset = offset
        self.next_offset = offset + 1

    def _wait(self, done: Callable[[], bool]) -> None:
        what, stopped = f"messages to {self._cluster}", Event()
        with answered(what, self._patience_s + LATE_S, stopped.set):
            self._wait_until(done, stopped)

    def _wait_until(self, done: Callable[[], bool], stopped: Event) -> None:
        deadline = now() + self._patience_s
        while True:
            if stopped.is_set():
                raise TimeoutError
            self._producer.poll(0)
            while self._overflow and self._failed is None:
                try:
                    self._produce(self._overflow[0])
                except BufferError:
                    check_fits(self._producer, self._overflow[0], self._cluster)
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
            self._failed = client.translated(error, f"{self._what} {topic!r}", self._cluster)
        return self._failed
