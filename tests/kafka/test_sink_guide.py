"""The program of docs/guides/kafka.md from topic to topic runs as it is printed."""

from pathlib import Path
from typing import Any

import pytest

from tests.first_jobs.programs import run
from tests.support.documentation import BLOCKS
from tests.support.kafka import Topics
from tidelog.connectors.kafka.client import library


def test_visits_are_counted_from_topic_to_topic(
    tmp_path: Path, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    topics.write(topics.new(name="visits"), ['{"page": "a"}', '{"page": "b"}', '{"page": "a"}'])
    names: dict[str, Any] = {}
    exec(BLOCKS["kafka 2"].replace("localhost:9092", topics.bootstrap), names)
    kafka = library()
    settings = {"bootstrap.servers": topics.bootstrap, "group.id": "tests"}
    reader = kafka.Consumer({**settings, "isolation.level": "read_committed"})
    totals: dict[bytes, bytes] = {}

    def has_output() -> bool:
        if "totals" not in topics.admin.list_topics(timeout=60).topics:
            return False
        if not reader.assignment():
            reader.assign([kafka.TopicPartition("totals", each, 0) for each in range(3)])
        totals.update((message.key(), message.value()) for message in reader.consume(9, 0.2))
        return totals == {b"a": b"2", b"b": b"1"}

    run(names["job"], tmp_path / "store", has_output)
    reader.close()
    assert len(topics.admin.list_topics(timeout=60).topics["totals"].partitions) == 3
