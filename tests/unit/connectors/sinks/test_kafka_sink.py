"""The Kafka sink, one decision at a time, over a Kafka in memory."""

import json
from typing import Any

import pytest
from confluent_kafka import KafkaError

from tests.support.fake_kafka import FakeKafka, failure
from tests.support.pipelines import Portions, config, run
from tests.unit.connectors.sinks.job import context
from tidelog import Job, KafkaSink, Row, SinkContext
from tidelog.connectors.kafka.writing import producing
from tidelog.errors import (
    ConfigError,
    FencedError,
    ObjectNotFoundError,
    RestoreError,
    StorageError,
    StoreUnreachableError,
    UserFunctionError,
)
from tidelog.ids import CheckpointId
from tidelog.storage.memory import MemoryStore

STAGING = "tidelog.job.sink.staging"


@pytest.fixture
def kafka(fake_kafka: FakeKafka) -> FakeKafka:
    fake_kafka.create("out")
    return fake_kafka


def sink(topic: Any = "out", **options: Any) -> KafkaSink:
    return KafkaSink(topic, **{"bootstrap": "kafka:9092", "value": "text", **options})


def started(of: KafkaSink, context: SinkContext, *owed: bytes) -> Any:
    writer = of.open(context)
    writer.recover(owed)
    return writer


def pre_committed(writer: Any, *records: Any) -> bytes:
    writer.write(list(records))
    token = writer.pre_commit(CheckpointId(1))
    assert isinstance(token, bytes)
    return token


def shown(kafka: FakeKafka, topic: str = "out") -> list[str]:
    return [(entry.value or b"").decode() for entry in kafka.visible(topic)]


def test_records_between_those_of_another_start_are_told_apart(kafka: FakeKafka) -> None:
    older, newer = sink().open(context(1)), started(sink(), context(2))
    for number in range(5):
        older.write([f"old {number}"])
        older._outbox.flush()
        newer.write([f"new {number}"])
        newer._outbox.flush()
    token = newer.pre_commit(CheckpointId(1))
    assert kafka.kept(STAGING) == 10
    newer.commit(token)
    assert shown(kafka) == [f"new {number}" for number in range(5)]
    assert older.pre_commit(CheckpointId(1)) is not None


@pytest.mark.parametrize("exactly_once", [True, False])
def test_what_the_client_has_no_room_for_keeps_its_place(
    kafka: FakeKafka, exactly_once: bool
) -> None:
    kafka.queue_size = 2
    writer = started(sink(exactly_once=exactly_once), context())
    records = [str(number) for number in range(50)]
    writer.write(records)
    assert writer.full()
    writer.make_room()
    assert not writer.full()
    token = writer.pre_commit(CheckpointId(1))
    if exactly_once:
        assert shown(kafka) == []
        writer.commit(token)
    assert shown(kafka) == records


@pytest.mark.parametrize("exactly_once", [True, False])
def test_a_task_is_held_back_where_brokers_are_slow(
    kafka: FakeKafka, exactly_once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producing, "MOST_BYTES", 3_000)
    waiting = []

    def call(name: str, effect: Any) -> Any:
        if name == "produce":
            waiting.append(None)
        elif name in ("flush", "poll"):
            waiting.clear()
        assert len(waiting) < 40
        return effect()

    kafka.call = call
    records = [f"{number:0100d}" for number in range(400)]
    job = Job("numbers")
    job.source(Portions({"all": records})).sink(sink(exactly_once=exactly_once))
    run(job, MemoryStore(), config(parallelism=1))
    assert shown(kafka) == records


def test_a_pre_commit_gives_up_while_brokers_are_away_and_the_next_one_has_all(
    kafka: FakeKafka,
) -> None:
    writer = started(sink(), context())
    writer.write(["a"])
    writer._outbox._patience_s = -1.0
    kafka.call = lambda name, effect: 0 if name in ("poll", "flush") else effect()
    with pytest.raises(StoreUnreachableError, match=r"within .* seconds; found 1 that are not"):
        writer.pre_commit(CheckpointId(1))
    kafka.call = lambda name, effect: effect()
    writer.commit(pre_committed(writer, "b"))
    assert shown(kafka) == ["a", "b"]


@pytest.mark.parametrize("call", ["get_watermark_offsets", "list_topics"])
def test_a_start_waits_for_a_broker_that_comes_back(kafka: FakeKafka, call: str) -> None:
    answers = [KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError._TRANSPORT]

    def away(name: str, effect: Any) -> Any:
        if name == call and answers:
            raise failure(answers.pop())
        return effect()

    kafka.call = away
    writer = started(sink(), context())
    assert not answers
    writer.commit(pre_committed(writer, "a"))
    assert shown(kafka) == ["a"]


def test_a_message_that_is_refused_for_good_ends_the_writer(kafka: FakeKafka) -> None:
    writer = started(sink(), context())
    del kafka.topics[STAGING]
    writer.write(["a"])
    for _ in range(2):
        with pytest.raises(ObjectNotFoundError, match=r"a message to topic 'tidelog.job"):
            writer.pre_commit(CheckpointId(1))
    with pytest.raises(ObjectNotFoundError):
        writer.write(["b"])


def test_a_message_that_is_too_large_is_an_error_at_once(kafka: FakeKafka) -> None:
    writer = started(sink(), context())

    def call(name: str, effect: Any) -> Any:
        if name == "produce":
            raise failure(KafkaError.MSG_SIZE_TOO_LARGE)
        return effect()

    kafka.call = call
    with pytest.raises(StorageError, match=r"message\.max\.bytes in client="):
        writer.write(["a"])


def test_of_two_jobs_with_one_prefix_the_older_is_fenced_and_the_id_is_named(
    kafka: FakeKafka,
) -> None:
    older = started(sink(), context(3, attempt="older"))
    token = pre_committed(older, "a")
    newer = started(sink(), context(3, attempt="newer"))
    with pytest.raises(FencedError, match=r"start 3-older .* id 'tidelog.job.sink.0'.*3-newer"):
        older.commit(token)
    newer.commit(pre_committed(newer, "b"))
    assert shown(kafka) == ["b"]
    with pytest.raises(FencedError, match=r"start 2-a .* delete the topics"):
        started(sink(), context(2))


def test_subtasks_that_are_no_more_are_fenced_though_nothing_is_owed(kafka: FakeKafka) -> None:
    zombie = started(sink(), context(1, subtask=3))
    token = pre_committed(zombie, "a")
    started(sink(), SinkContext("job", "sink", 0, 1, context(2).generation, "a"))
    with pytest.raises(FencedError, match=r"tidelog\.job\.sink\.3"):
        zombie.commit(token)
    assert shown(kafka) == []


def test_a_start_that_is_held_deletes_nothing_that_its_successor_stages(kafka: FakeKafka) -> None:
    staged: list[tuple[Any, bytes]] = []

    def call(name: str, effect: Any) -> Any:
        result = effect()
        if name == "commit_transaction" and not staged:
            kafka.call = lambda name, effect: effect()
            successor = started(sink(), context(2))
            staged.append((successor, pre_committed(successor, "a")))
        return result

    kafka.call = call
    started(sink(), context(1))
    ((successor, token),) = staged
    successor.commit(token)
    assert shown(kafka) == ["a"]


def test_a_checkpoint_whose_records_were_moved_long_ago_sends_nothing_again(
    kafka: FakeKafka,
) -> None:
    first = started(sink(), context(1))
    old = pre_committed(first, "a", "b")
    first.commit(old)
    first.commit(pre_committed(first, "c"))
    assert kafka.kept(STAGING) == 0
    kept = context(2)
    started(sink(), SinkContext("job", "sink", 0, 4, kept.generation, "a", (old,)), old)
    assert shown(kafka) == ["a", "b", "c"]
    # No retained checkpoint names it any more: what became of it is forgotten.
    started(sink(), context(3))
    with pytest.raises(ObjectNotFoundError, match="nothing about that start in the topic of comm"):
        started(sink(), context(4), old)
    assert shown(kafka) == ["a", "b", "c"]


@pytest.mark.parametrize("gone", ["staging", "commits"])
def test_records_that_wait_in_a_topic_that_is_gone_are_an_error(
    kafka: FakeKafka, gone: str
) -> None:
    token = pre_committed(started(sink(), context(1)), "a")
    del kafka.topics[f"tidelog.job.sink.{gone}"]
    with pytest.raises(ObjectNotFoundError, match="bring back the topics"):
        started(sink(), context(2), token)
    assert shown(kafka) == []


def test_records_of_a_running_job_whose_commits_are_gone_are_not_moved_twice(
    kafka: FakeKafka,
) -> None:
    writer = started(sink(), context())
    token = pre_committed(writer, "a")
    kafka.create("tidelog.job.sink.commits", 4)
    kafka.owners["tidelog.job.sink.0"].epoch += 1  # so that the writer has to look
    with pytest.raises(ObjectNotFoundError, match="what this start of the job has written there"):
        writer.commit(token)
    assert shown(kafka) == []


def test_records_are_not_moved_by_a_sink_with_another_prefix(kafka: FakeKafka) -> None:
    token = pre_committed(started(sink(), context(1)), "a")
    with pytest.raises(RestoreError, match="drain the job"):
        started(sink(prefix="other"), context(2), token)
    with pytest.raises(RestoreError, match="a transaction of sink 'sink'"):
        started(sink(), context(2), b"\x01")
    started(sink(), context(3), token)
    assert shown(kafka) == ["a"]


def test_a_sink_that_is_at_least_once_from_now_on_commits_what_was_pre_committed(
    kafka: FakeKafka,
) -> None:
    token = pre_committed(started(sink(), context(1)), "a")
    writer = started(sink(exactly_once=False), context(2), token)
    writer.write(["b"])
    writer.pre_commit(CheckpointId(1))
    assert shown(kafka) == ["a", "b"]


def test_a_checkpoint_that_cannot_be_read_keeps_every_staged_record(kafka: FakeKafka) -> None:
    first = started(sink(), context(1))
    token = pre_committed(first, "a")
    unread = SinkContext("job", "sink", 0, 4, context(2).generation, "a", None)
    second = started(sink(), unread)
    second.commit(pre_committed(second, "b"))
    assert kafka.kept(STAGING) == 2
    third = started(sink(), context(3), token)
    third.commit(pre_committed(third, "c"))
    assert (shown(kafka), kafka.kept(STAGING)) == (["b", "a", "c"], 0)


def test_records_that_could_not_be_deleted_are_deleted_later(
    kafka: FakeKafka, caplog: pytest.LogCaptureFixture
) -> None:
    writer = started(sink(), context())

    def call(name: str, effect: Any) -> Any:
        if name == "delete_records":
            raise failure(KafkaError.TOPIC_AUTHORIZATION_FAILED)
        return effect()

    kafka.call = call
    writer.commit(pre_committed(writer, "a"))
    kafka.call = lambda name, effect: effect()
    writer.commit(pre_committed(writer, "b"))
    assert (shown(kafka), kafka.kept(STAGING)) == (["a", "b"], 0)
    assert f"not deleted from topic {STAGING}" in caplog.text


def test_a_topic_that_is_missing_is_an_error_or_made(kafka: FakeKafka) -> None:
    with pytest.raises(ObjectNotFoundError, match=r"topic 'absent'.*pass create="):
        sink("absent").open(context())
    started(sink("absent", create=3), context())
    assert len(kafka.topics["absent"]) == 3


def test_a_topic_that_a_function_names_is_there_before_anything_is_promised_to_it(
    kafka: FakeKafka,
) -> None:
    writer = started(sink(lambda record: f"to-{record}"), context())
    writer.write(["a"])
    with pytest.raises(ObjectNotFoundError, match="topic 'to-a'"):
        writer.pre_commit(CheckpointId(1))
    kafka.create("to-a")
    writer.commit(writer.pre_commit(CheckpointId(2)))
    assert shown(kafka, "to-a") == ["a"]


@pytest.mark.parametrize(
    ("options", "record", "expected"),
    [
        ({"value": "json"}, Row(word="a", n=1), (None, b'{"word":"a","n":1}', [], 0)),
        ({"value": "json"}, ("a", [1]), (None, b'["a",[1]]', [], 0)),
        ({"value": "raw"}, b"\x00", (None, b"\x00", [], 0)),
        ({"value": lambda r: None, "key": lambda r: r}, "a", (b"a", None, [], 0)),
        ({"key": "text", "timestamp": lambda r: r}, 7, (b"7", b"7", [], 7)),
        ({"headers": lambda r: {"h": r}}, "a", (None, b"a", [("h", b"a")], 0)),
        ({"headers": lambda r: [("h", None)] * 2}, "a", (None, b"a", [("h", None)] * 2, 0)),
    ],
)
@pytest.mark.parametrize("exactly_once", [True, False])
def test_records_become_messages(
    kafka: FakeKafka, options: dict[str, Any], record: Any, expected: Any, exactly_once: bool
) -> None:
    writer = started(sink(**options, exactly_once=exactly_once), context())
    writer.write([record])
    token = writer.pre_commit(CheckpointId(1))
    if token is not None:
        writer.commit(token)
    (entry,) = kafka.visible("out")
    assert (entry.key, entry.value, entry.headers, entry.timestamp) == expected


@pytest.mark.parametrize("exactly_once", [True, False])
def test_a_function_may_choose_topic_and_partition(kafka: FakeKafka, exactly_once: bool) -> None:
    kafka.create("more", 3)
    to = sink(lambda r: r[0], partition=lambda r: r[1], exactly_once=exactly_once)
    writer = started(to, context())
    writer.write([("more", 2), ("out", 0)])
    token = writer.pre_commit(CheckpointId(1))
    if token is not None:
        writer.commit(token)
    assert [len(kafka.visible("more", n)) for n in range(3)] == [0, 0, 1]
    assert len(kafka.visible("out")) == 1


@pytest.mark.parametrize(
    ("options", "record", "found"),
    [
        ({"value": "raw"}, 1, "value .* found a int"),
        ({"value": "json"}, object(), "'json' can encode"),
        ({"value": "text"}, "\ud800", "surrogates"),
        ({"key": lambda r: 1}, "a", "key .* found a int"),
        ({"partition": lambda r: "1"}, "a", "partition .* found '1'"),
        ({"partition": lambda r: -1}, "a", "partition .* found -1"),
        ({"topic": lambda r: ""}, "a", "topic .* found ''"),
        ({"headers": lambda r: {1: "a"}}, "a", "header .* found 1"),
    ],
)
def test_a_record_that_kafka_cannot_keep_is_an_error(
    kafka: FakeKafka, options: dict[str, Any], record: Any, found: str
) -> None:
    writer = started(sink(**options), context())
    with pytest.raises(UserFunctionError, match=found):
        writer.write([record])


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"value": "csv"}, "value of a Kafka sink; expected 'json', 'text', 'raw'"),
        ({"key": "csv"}, "key of a Kafka sink"),
        ({"topic": ""}, "topic of a Kafka sink"),
        ({"prefix": ""}, "prefix"),
        ({"create": 0}, "create"),
        ({"client": {"acks": "1"}}, "'acks'.*use exactly_once="),
        ({"client": {"transactional.id": "x"}}, "use prefix="),
    ],
)
def test_what_cannot_be_meant_is_an_error(options: dict[str, Any], found: str) -> None:
    with pytest.raises(ConfigError, match=found):
        sink(**options)


def test_names_that_kafka_does_not_take_have_topics_of_their_own(kafka: FakeKafka) -> None:
    for name in ("büro", "bäro", "x" * 300, "x" * 301):
        started(sink(), SinkContext("job", name, 0, 1, context().generation, "a"))
    topics = [name for name in kafka.topics if name.endswith(".commits")]
    assert len(topics) == 4 and all(name.isascii() and len(name) < 249 for name in topics)


def test_commits_can_be_read_by_people(kafka: FakeKafka) -> None:
    writer = started(sink(), context(5, attempt="f3"))
    writer.commit(pre_committed(writer, "a"))
    written = kafka.visible("tidelog.job.sink.commits")[-1].value or b""
    assert json.loads(written) == {"owner": [5, "f3"], "moved": {"5-f3": 1}}
