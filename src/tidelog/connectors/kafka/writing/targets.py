"""The topics that records are for: they exist before anything is promised to them."""

from typing import Any

from tidelog.connectors.kafka.client import Cluster
from tidelog.connectors.kafka.writing.topics import make_topic, partitions_of
from tidelog.errors import ObjectNotFoundError


class Targets:
    """The topics of one writer; with `create`, one that is missing gets so many partitions."""

    def __init__(self, cluster: Cluster, create: int | None) -> None:
        self._cluster = cluster
        self._create = create
        self._admin: Any = None
        self._known: set[str] = set()
        self._new: set[str] = set()

    def add(self, topic: str) -> None:
        """Records go to this topic."""
        if topic not in self._known:
            self._new.add(topic)

    def check(self) -> None:
        """Find or create all topics that were added; raises ObjectNotFoundError."""
        for topic in sorted(self._new):
            self._check(topic)
            self._new.remove(topic)
            self._known.add(topic)

    def _check(self, topic: str) -> None:
        if self._admin is None:
            self._admin = self._cluster.admin()
        if partitions_of(self._cluster, self._admin, topic):
            return
        if self._create is None:
            raise ObjectNotFoundError(
                f"topic {topic!r}",
                expected=f"to exist at {self._cluster.bootstrap}",
                found="no such topic, or no right to see it",
                action="create it, or pass create= with a number of partitions to KafkaSink",
            )
        make_topic(self._cluster, topic, self._create)
