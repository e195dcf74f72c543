"""The clients that the Kafka sink needs, with the settings its guarantees rest on."""

from typing import Any, Final

from tidelog.connectors.kafka.client import Cluster
from tidelog.effects import SystemClock

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
