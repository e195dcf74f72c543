"""The programs of the guide run as they are printed, but for the address of the broker."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.first_jobs.programs import add_rows, rows_of, run
from tests.first_jobs.test_cookbook import both_jobs, orders
from tests.process.harness import wait_until
from tests.support.documentation import BLOCKS
from tests.support.kafka import Topics
from tidelog import Job
from tidelog.connectors.kafka.client import library

MINUTE_MS = 60_000


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Programs write below the working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def job_of(block: str, topics: Topics) -> Job:
    names: dict[str, Any] = {}
    exec(BLOCKS[block].replace("localhost:9092", topics.bootstrap), names)
    made: Job = names["job"]
    return made


def test_windows_fire_by_the_times_of_messages_though_a_partition_is_empty(
    topics: Topics, here: Path
) -> None:
    topic = topics.new(3, "requests")
    for partition, minutes in [(0, (1, 2, 11, 25)), (1, (9, 3, 12, 25))]:
        for minute in minutes:
            value = '{"server": "a"}'
            topics.write(topic, [value], partition=partition, timestamp=minute * MINUTE_MS)
    run(job_of("kafka 0", topics), here / "store", lambda: len(rows_of(here / "counts")) == 2)
    counts = {row["start_ms"]: row["requests"] for row in rows_of(here / "counts")}
    # Minute 3 is late in its own partition once minute 9 was read, but its window is open.
    assert counts == {0: 4, 600_000: 2}


def test_two_topics_change_one_stock(topics: Topics, here: Path) -> None:
    orders, returns = topics.new(2, "orders"), topics.new(1, "returns")
    for number in range(6):
        order = {"product": "oar", "pieces": number}
        topics.write(orders, [json.dumps(order)], partition=number % 2)
    topics.write(returns, ["3", "4"], key="oar")

    def changes() -> list[int]:
        if not (here / "stock.db").exists():
            return []
        with sqlite3.connect(here / "stock.db") as database:
            exists = "SELECT 1 FROM sqlite_master WHERE name = 'changes'"
            if not database.execute(exists).fetchone():
                return []
            return [n for (n,) in database.execute("SELECT pieces FROM changes ORDER BY rowid")]

    run(job_of("kafka 1", topics), here / "store", lambda: changes()[-1:] == [-8])


def test_visits_are_counted_from_topic_to_topic(topics: Topics, here: Path) -> None:
    topics.write(topics.new(name="visits"), ['{"page": "a"}', '{"page": "b"}', '{"page": "a"}'])
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

    run(job_of("kafka 2", topics), here / "store", has_output)
    reader.close()
    assert len(topics.admin.list_topics(timeout=60).topics["totals"].partitions) == 3


def test_two_jobs_with_a_topic_between_count_each_valid_order_once_though_both_are_killed(
    topics: Topics, here: Path
) -> None:
    (here / "jobs.py").write_text(BLOCKS["cookbook 3"].replace("localhost:9092", topics.bootstrap))
    kafka = library()
    settings = {"bootstrap.servers": topics.bootstrap, "group.id": "tests"}
    reader = kafka.Consumer({**settings, "isolation.level": "read_committed"})
    names = [topics.new(3, "clean"), topics.new(3, "counts")]
    reader.assign([kafka.TopicPartition(name, each, 0) for name in names for each in range(3)])
    written: dict[str, list[Any]] = {name: [] for name in names}

    def newest() -> dict[str, int]:
        for message in reader.consume(4000, 0.2):
            written[message.topic()].append(json.loads(message.value()))
        return dict(sorted(written["counts"], key=lambda pair: pair[1]))

    for number in range(3):
        counted = newest()
        rows = [*orders(1000), *({"country": "nl"} for _ in range(7))]
        add_rows(here / "orders" / f"{number}.jsonl", rows)
        with both_jobs(here) as jobs:
            wait_until(lambda counted=counted: newest() != counted, jobs["count"])
            if number == 2:
                wait_until(lambda: newest() == {"nl": 1500, "de": 1500}, jobs["count"])
    reader.close()
    assert len(written["clean"]) == 3000
    assert len(set(map(tuple, written["counts"]))) == len(written["counts"])
