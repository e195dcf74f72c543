"""Records that brokers refuse: refused before a checkpoint has them where that can be known, and
where not, named with a way out that is counted."""

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

from tests.kafka.test_sink import Job
from tests.support.kafka import Topics
from tidelog import DeadLetterTopic, StorageError, UserFunctionError
from tidelog.ids import CheckpointId

ONE = CheckpointId(1)
TWO = CheckpointId(2)
JobOf = Callable[[str], Job]


@pytest.fixture
def job_of(topics: Topics) -> Iterator[JobOf]:
    """Makes jobs that write to a topic, and closes them."""
    with ExitStack() as jobs:
        yield lambda topic: jobs.enter_context(closing(Job(topics, topic)))


def set_config(topics: Topics, topic: str, **config: str) -> None:
    entries = [
        ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for name, value in config.items()
    ]
    change = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
    topics.admin.incremental_alter_configs([change])[change].result(60)


OPTIONS: dict[str, Any] = {
    "partition": lambda r: r[0],
    "key": lambda r: r[1],
    "value": lambda r: r[2],
}


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_a_record_that_its_topic_would_refuse_is_refused_when_it_is_written(
    topics: Topics, job_of: JobOf, policy: str
) -> None:
    job = job_of(topics.new(2, cleanup_policy=policy, max_message_bytes="2000"))
    writer = job.start(0, **OPTIONS)
    writer.write([(1, "k", "fine")])
    for record, told in (
        ((2, "k", "x"), "partition .*expected 0 to 1"),
        ((0, None, "x"), "key .*is compacted"),
        ((0, "k", "x" * 3000), "size .*at most 2000 bytes"),
    ):
        with pytest.raises(UserFunctionError, match=told):
            writer.write([record])


def refused_later(topics: Topics, job: Job) -> bytes:
    """Staged records of which one is refused when they are moved: its topic has changed."""
    writer = job.start(0, **OPTIONS)
    records = [(0, f"k{n}", f"v{n}") for n in range(40)]
    records[17] = (0, None, "no key")
    writer.write(records)
    owed: bytes = writer.pre_commit(ONE)
    set_config(topics, job.topic, cleanup_policy="compact")
    job.close()
    return owed


def test_a_record_that_is_refused_at_the_commit_is_named_with_its_offset_and_a_way_out(
    topics: Topics, job_of: JobOf
) -> None:
    job = job_of(topics.new())
    owed = refused_later(topics, job)
    for generation in (1, 2):
        with pytest.raises(StorageError) as refused:
            job.start(generation, owed, **OPTIONS)
        told = str(refused.value)
        assert f"offset 17 of partition 0 of '{job.stem}.staging'" in told
        assert f"topic '{job.topic}', partition 0" in told
        assert "on_refused=DeadLetterTopic" in told and "'skip'" in told
    # The way back: the topic takes it again.
    set_config(topics, job.topic, cleanup_policy="delete")
    job.start(3, owed, **OPTIONS)
    assert len(topics.read(job.topic, 40)) == 40


@pytest.mark.parametrize("letters", [True, False])
def test_a_refused_record_is_let_go_of_and_all_others_are_moved_once(
    topics: Topics, job_of: JobOf, letters: bool, caplog: pytest.LogCaptureFixture
) -> None:
    job = job_of(topics.new())
    owed = refused_later(topics, job)
    dead = topics.new(1)
    policy: Any = DeadLetterTopic(dead) if letters else "skip"
    with caplog.at_level(logging.WARNING, "tidelog"):
        writer = job.start(1, owed, on_refused=policy, **OPTIONS)
    assert "refused by a topic since the start: 1 staged record (" in caplog.text
    writer.write([(0, "later", "v40")])
    writer.commit(writer.pre_commit(TWO))
    shown = [m.value().decode() for m in topics.read(job.topic, 40)]
    assert shown == [f"v{n}" for n in range(41) if n != 17]
    if letters:
        (letter,) = topics.read(dead, 1)
        headers = dict(letter.headers())
        assert letter.value() == b"no key"
        assert headers["tidelog.topic"] == job.topic.encode()
        assert headers["tidelog.staged"].endswith(b".staging/0/17")
        assert b"INVALID_RECORD" in headers["tidelog.error"]
