"""The clients that the Kafka sink needs, with the settings its guarantees rest on."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

from tidelog.connectors.kafka.client import Cluster, library, translated
from tidelog.connectors.kafka.writing.messages import Message
from tidelog.effects import SystemClock, hold_thread

T = TypeVar("T")

PATIENCE_S: Final = 60.0
"""How long a call may wait for the cluster."""

now: Final = SystemClock().monotonic
"""Seconds, for calls that wait in a thread."""

FIXED: Final = {
    **dict.fromkeys(("acks", "enable.idempotence", "message.timeout.ms"), "exactly_once="),
    **dict.fromkeys(("delivery.timeout.ms", "isolation.level", "retries"), "exactly_once="),
    **dict.fromkeys(("message.send.max.retries", "delivery.report.only.error"), "exactly_once="),
    **dict.fromkeys(("transactional.id", "group.id"), "prefix="),
    **dict.fromkeys(("transaction.timeout.ms", "enable.auto.commit"), "what tidelog sets"),
    **dict.fromkeys(("auto.offset.reset", "enable.partition.eof"), "what tidelog sets"),
}
"""Settings that cannot be passed, and what to use instead."""


_SOON_BACK: Final = {"reconnect.backoff.max.ms": 1_000}
"""Kafka's client would wait for ten seconds before it looks for a broker again."""


_PASSING: Final = (
    *("NOT_LEADER_FOR_PARTITION", "LEADER_NOT_AVAILABLE", "OFFSET_NOT_AVAILABLE", "_TRANSPORT"),
    *("REPLICA_NOT_AVAILABLE", "UNKNOWN_LEADER_EPOCH", "FENCED_LEADER_EPOCH", "_ALL_BROKERS_DOWN"),
)
"""What a cluster answers while a broker comes back."""
_PAUSE_S: Final = 0.1


def patiently(ask: Callable[[], T], what: str, cluster: Cluster) -> T:
    """The answer of a call, asked again while a broker comes back; raises errors of
    `tidelog.errors`.
    """
    give_up = now() + PATIENCE_S
    while True:
        try:
            return ask()
        except library().KafkaException as error:
            if error.args[0].name() not in _PASSING or now() > give_up:
                raise translated(error.args[0], what, cluster) from error
        hold_thread(_PAUSE_S)


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


def reader(cluster: Cluster, group: str) -> Any:
    """A consumer of partitions that are assigned by hand; the group is one in name only."""
    return cluster.consumer(
        {
            "group.id": group,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 20,
            **_SOON_BACK,
        }
    )
