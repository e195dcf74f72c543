"""What a job gets of topics: every message once, in order within its partition, from where it was
left.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.first_jobs.programs import run
from tests.kafka.jobs import read, source, values
from tests.support.kafka import Topics
from tidelog import ConfigError, ForeachSink, Job, KafkaRecord
from tidelog.connectors.kafka.client import library


def test_a_message_is_a_record_with_all_that_kafka_knows(topics: Topics, tmp_path: Path) -> None:
    topic = topics.new()
    headers = [("trace", b"\xff"), ("empty", None), ("trace", b"2")]
    topics.write(topic, ['{"user":"ada"}'], key="k", headers=headers, timestamp=1_234)
    topics.write(topic, [None], timestamp=1_235)
    found = read(source(topics, topic, stop="latest", value="json", key="text"), tmp_path)
    assert found == [
        KafkaRecord("k", {"user": "ada"}, tuple(headers), 1_234, topic, 0, 0),
        KafkaRecord(None, None, (), 1_235, topic, 0, 1),
    ]


@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_bounded_job_ends_at_what_is_there(
    topics: Topics, tmp_path: Path, parallelism: int
) -> None:
    many, empty = topics.new(3), topics.new(2)
    for partition in range(3):
        topics.write(many, [f"{partition}-{n}" for n in range(3_000)], partition=partition)
    bounded = source(topics, many, empty, stop="latest")
    found = read(bounded, tmp_path, parallelism=parallelism)
    for partition in range(3):
        of_it = [record for record in found if record.partition == partition]
        assert [record.offset for record in of_it] == list(range(3_000))
    assert len(found) == 9_000


def test_a_stopped_job_goes_on_behind_its_checkpoint_whatever_the_group_says(
    topics: Topics, tmp_path: Path
) -> None:
    topic = topics.new(2)
    topics.write(topic, ["a", "b"], partition=0)
    reading = source(topics, topic, group="watchers-1")
    assert values(read(reading, tmp_path, lambda found: len(found) == 2)) == ["a", "b"]
    group = library().Consumer({"bootstrap.servers": topics.bootstrap, "group.id": "watchers-1"})
    places = [library().TopicPartition(topic, each) for each in (0, 1)]
    assert group.committed(places)[0].offset == 2
    # Somebody sets the group back: only those who watch it see that.
    places[0].offset = 0
    group.commit(offsets=places[:1], asynchronous=False)
    topics.write(topic, ["c"], partition=0)
    topics.write(topic, ["d"], partition=1)
    bounded = source(topics, topic, group="watchers-1", stop="latest")
    assert sorted(values(read(bounded, tmp_path))) == ["c", "d"]
    assert [each.offset for each in group.committed(places)] == [3, 1]
    group.close()


def test_a_source_object_that_two_operators_read_is_named(topics: Topics, tmp_path: Path) -> None:
    topic, job = topics.new(), Job("twice")
    shared = source(topics, topic, stop="latest")
    job.source(shared, name="a").union(job.source(shared, name="b")).sink(ForeachSink(print))
    topics.write(topic, ["x"])
    with pytest.raises(ConfigError, match=r"make a KafkaSource for each job"):
        run(job, tmp_path)


def test_the_first_start_is_at_an_offset_a_time_or_the_end(topics: Topics, tmp_path: Path) -> None:
    topic = topics.new(2)
    for number in range(4):
        topics.write(topic, [str(number)], partition=0, timestamp=1_700_000_000_000 + number)

    def first(name: str, start: Any) -> list[Any]:
        return values(read(source(topics, topic, start=start, stop="latest"), tmp_path / name))

    assert first("offset", {(topic, 0): 3}) == ["3"]
    assert first("time", datetime.fromtimestamp(1_700_000_000.002, UTC)) == ["2", "3"]
    assert first("before 1970", datetime.min.replace(tzinfo=UTC)) == ["0", "1", "2", "3"]
    assert first("later", datetime(2100, 1, 1, tzinfo=UTC)) == []
    assert first("latest", "latest") == []


def test_what_comes_after_a_start_at_the_end_is_read_though_no_record_was_before(
    topics: Topics, tmp_path: Path
) -> None:
    topic = topics.new()
    topics.write(topic, ["before"])
    latest = source(topics, topic, start="latest", rediscover_s=0.1)
    assert read(latest, tmp_path, lambda _: slots(tmp_path) > 1) == []
    topics.grow(topic, 2)
    topics.write(topic, ["while it was down"], partition=0)
    topics.write(topic, ["in a new partition"], partition=1)
    again = source(topics, topic, start="latest", stop="latest")
    assert sorted(values(read(again, tmp_path))) == ["in a new partition", "while it was down"]


def test_a_partition_that_is_added_while_the_job_waits_for_messages_is_read(
    topics: Topics, tmp_path: Path
) -> None:
    topic, added = topics.new(), list[str]()
    topics.write(topic, ["in the first"])

    def grown(found: list[KafkaRecord]) -> bool:
        if found and not added:
            topics.grow(topic, 2)
            topics.write(topic, ["in the second"], partition=1)
            added.append(topic)
        return len(found) == 2

    waiting = source(topics, topic, rediscover_s=0.1)
    assert values(read(waiting, tmp_path, grown)) == ["in the first", "in the second"]


def slots(store: Path) -> int:
    names = [path.stem for path in (store / "checkpoints").glob("*.json")]
    return max(map(int, names), default=0)


@pytest.mark.parametrize("committed", [True, False])
def test_transactions_that_were_aborted_are_not_read_unless_wanted(
    topics: Topics, tmp_path: Path, committed: bool
) -> None:
    topic = topics.new()
    writer = library().Producer({"bootstrap.servers": topics.bootstrap, "transactional.id": topic})
    writer.init_transactions()
    for value, end in [("kept", "commit"), ("dropped", "abort"), ("last", "commit")]:
        writer.begin_transaction()
        writer.produce(topic, value)
        writer.flush()
        getattr(writer, f"{end}_transaction")()
    client = {} if committed else {"isolation.level": "read_uncommitted"}
    found = values(read(source(topics, topic, stop="latest", client=client), tmp_path))
    assert found == (["kept", "last"] if committed else ["kept", "dropped", "last"])
