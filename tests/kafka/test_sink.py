"""The Kafka sink against a broker: what the Kafka in memory of other tests takes for granted."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.kafka import Topics
from tests.unit.connectors.sinks.job import pre_committed
from tidelog import KafkaSink, SinkContext, SinkWriter
from tidelog.connectors.kafka.client import library
from tidelog.errors import FencedError, ObjectNotFoundError, UserFunctionError
from tidelog.ids import CheckpointId, Generation


class Job:
    """Starts of the writers of a sink by a name that no other test has."""

    def __init__(self, topics: Topics, topic: str | None = None) -> None:
        self.topics = topics
        self.topic = topic or topics.new()
        self.stem = f"tidelog.job-{self.topic}.sink"
        self._open: list[SinkWriter] = []
        self._marks = 0

    def start(
        self,
        generation: int,
        *owed: bytes,
        subtask: int = 0,
        parallelism: int = 1,
        attempt: str = "a",
        **options: Any,
    ) -> Any:
        settings = {"bootstrap": self.topics.bootstrap, "value": "text", **options}
        context = SinkContext(
            f"job-{self.topic}", "sink", subtask, parallelism, Generation(generation), attempt, owed
        )
        writer = KafkaSink(self.topic, **settings).open(context)
        self._open.append(writer)
        writer.recover(owed)
        return writer

    def shown(self) -> list[str]:
        """Everything that is committed, up to a mark that is written now."""
        self._marks += 1
        mark = f"mark {self._marks}"
        self.topics.write(self.topic, [mark])
        found: list[str] = []
        while mark not in found:
            found = [m.value().decode() for m in self.topics.read(self.topic, len(found) + 1)]
        return [value for value in found if not value.startswith("mark ")]

    def kept(self) -> int:
        """Staged records that were not deleted."""
        reader = library().Consumer(
            {"bootstrap.servers": self.topics.bootstrap, "group.id": "tests"}
        )
        staging = f"{self.stem}.staging"
        marks = [
            reader.get_watermark_offsets(library().TopicPartition(staging, partition), timeout=60)
            for partition in self.topics.admin.list_topics(timeout=60).topics[staging].partitions
        ]
        reader.close()
        return sum(high - low for low, high in marks)

    def close(self) -> None:
        for writer in self._open:
            writer.close()


@pytest.fixture
def job(topics: Topics) -> Iterator[Job]:
    made = Job(topics)
    yield made
    made.close()


def test_records_are_shown_by_their_commit_and_staging_is_empty_then(job: Job) -> None:
    writer = job.start(1)
    token = pre_committed(writer, 1, "a", "b")
    assert (job.shown(), job.kept()) == ([], 2)
    writer.commit(token)
    writer.commit(token)
    writer.close()
    assert job.shown() == ["a", "b"] and job.kept() == 0
    restored = job.start(2, token)
    restored.commit(pre_committed(restored, 1, "c"))
    assert job.shown() == ["a", "b", "c"]


def test_a_transaction_that_a_dead_process_left_open_is_moved_by_its_successor(job: Job) -> None:
    dead = job.start(1)
    token = pre_committed(dead, 1, "a", "b")
    mover = dead._movers[0]
    mover._producer.begin_transaction()
    mover._producer.produce(job.topic, "a")
    mover._producer.flush(60)
    job.start(2, token)
    assert job.shown() == ["a", "b"]
    with pytest.raises(library().KafkaException, match="fenced"):
        mover._producer.commit_transaction(10)
    with pytest.raises(FencedError, match=f"transactional id '{job.stem}.0'.*found start 2-a"):
        dead.commit(token)
    assert job.shown() == ["a", "b"]


def test_subtasks_that_are_no_more_have_their_records_moved_and_partitions_grow(job: Job) -> None:
    of_three = [job.start(1, subtask=n, parallelism=3) for n in range(3)]
    tokens = [pre_committed(writer, 1, f"of {n}") for n, writer in enumerate(of_three)]
    job.start(2, *tokens)
    assert sorted(job.shown()) == ["of 0", "of 1", "of 2"]
    with pytest.raises(FencedError):
        of_three[2].commit(pre_committed(of_three[2], 1, "zombie"))
    grown = [job.start(3, subtask=n, parallelism=4) for n in range(4)]
    for n, writer in enumerate(grown):
        writer.commit(pre_committed(writer, 1, f"of 4: {n}"))
    assert len(job.shown()) == 7


def test_records_of_long_ago_wait_in_staging_as_long_as_others(job: Job) -> None:
    writer = job.start(1, timestamp=lambda record: 1_000, key=lambda record: "k")
    writer.commit(pre_committed(writer, 1, "a"))
    (message,) = job.topics.read(job.topic, 1)
    assert message.timestamp()[1] == 1_000 and message.key() == b"k" and message.headers() is None
    described = job.topics.admin.describe_configs(
        [library().admin.ConfigResource("topic", f"{job.stem}.staging")]
    )
    (settings,) = [future.result(60) for future in described.values()]
    assert settings["message.timestamp.type"].value == "LogAppendTime"
    assert settings["retention.ms"].value == "-1"


def test_records_of_topics_that_were_deleted_are_an_error_and_not_silence(job: Job) -> None:
    token = pre_committed(job.start(1), 1, "a")
    job.topics.delete(f"{job.stem}.staging")
    with pytest.raises(ObjectNotFoundError, match="the topic ends at offset 0"):
        job.start(2, token)
    job.topics.delete(f"{job.stem}.commits")
    with pytest.raises(ObjectNotFoundError, match="nothing about that start"):
        job.start(3, token)
    assert job.shown() == []


def test_a_record_that_no_client_sends_is_an_error_at_once(job: Job) -> None:
    writer = job.start(1)
    with pytest.raises(UserFunctionError, match=r"message\.max\.bytes in client="):
        writer.write(["x" * 2_000_000])
    large = job.start(2, client={"message.max.bytes": 3_000_000})
    assert large.pre_commit(CheckpointId(1)) is None


@pytest.mark.parametrize("topic", ["absent", lambda record: "absent"])
def test_nobody_makes_a_topic_that_is_missing_unless_asked(topics: Topics, topic: Any) -> None:
    sink = KafkaSink(topic, bootstrap=topics.bootstrap, prefix=topics.new())
    context = SinkContext("job", "sink", 0, 1, Generation(1), "a")
    with pytest.raises(ObjectNotFoundError, match="topic 'absent'"):
        writer = sink.open(context)
        writer.recover([])
        writer.write(["a"])
        writer.pre_commit(CheckpointId(1))
    assert "absent" not in topics.admin.list_topics(timeout=60).topics


def test_a_full_queue_of_the_client_is_emptied_whatever_linger_says(job: Job) -> None:
    """A wait for the end of `linger.ms` would take longer than a commit may."""
    small = {"queue.buffering.max.messages": 2, "linger.ms": 59_000}
    values = [f"record {number}" for number in range(7)]
    writer = job.start(1, client=small)
    for value in values:
        writer.write([value])
        if writer.full():
            writer.make_room()
    writer.commit(writer.pre_commit(CheckpointId(1)))
    assert job.shown() == values
