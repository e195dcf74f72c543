"""The Kafka sink, one decision at a time, over a Kafka in memory."""

from typing import Any

import pytest

from tests.support.fake_kafka import FakeKafka, Partition
from tests.support.pipelines import Portions, config, run
from tests.unit.connectors.sinks.job import context, pre_committed
from tidelog import Job, KafkaSink, Row, SinkContext
from tidelog.errors import (
    ConfigError,
    FencedError,
    ObjectNotFoundError,
    RestoreError,
    StoreUnreachableError,
    UserFunctionError,
)
from tidelog.ids import CheckpointId
from tidelog.storage.memory import MemoryStore


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


def committed(writer: Any, *records: Any) -> None:
    """Write these records to a sink that is exactly or at least once, up to their commit."""
    writer.write(list(records))
    if writer.full():
        writer.make_room()
    token = writer.pre_commit(CheckpointId(1))
    if token is not None:
        writer.commit(token)


def shown(kafka: FakeKafka) -> list[str]:
    return [(entry.value or b"").decode() for entry in kafka.visible("out")]


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
    writer.commit(pre_committed(writer, 1, "b"))
    assert shown(kafka) == ["a", "b"]


def test_of_two_jobs_with_one_prefix_the_older_is_fenced_and_the_id_is_named(
    kafka: FakeKafka,
) -> None:
    older = started(sink(), context(3, attempt="older"))
    token = pre_committed(older, 1, "a")
    newer = started(sink(), context(4, attempt="newer"))
    with pytest.raises(FencedError, match=r"start 3-older .* id 'tidelog.job.sink.0'.*4-newer"):
        older.commit(token)
    newer.commit(pre_committed(newer, 1, "b"))
    assert shown(kafka) == ["b"]
    with pytest.raises(FencedError, match=r"start 2-a .* delete the topics"):
        started(sink(), context(2))


def test_records_of_a_running_job_whose_commits_are_gone_are_not_moved_twice(
    kafka: FakeKafka,
) -> None:
    writer = started(sink(), context())
    token = pre_committed(writer, 1, "a")
    kafka.create("tidelog.job.sink.commits", 4)
    kafka.owners["tidelog.job.sink.0"].epoch += 1  # so that the writer has to look
    with pytest.raises(ObjectNotFoundError, match="what this start of the job has written there"):
        writer.commit(token)
    assert shown(kafka) == []


@pytest.mark.parametrize("exactly_once", [True, False])
def test_a_message_for_which_the_client_never_has_room_is_an_error(
    kafka: FakeKafka, exactly_once: bool
) -> None:
    """With queue.buffering.max.kbytes below its size: it would be waited for without end."""
    writer = started(sink(exactly_once=exactly_once), context())
    kafka.queue_size = 0
    writer.write(["a"])
    with pytest.raises(ConfigError, match=r"queue.*none for one of 1 bytes .*raise them above"):
        writer.make_room()


def test_staged_records_for_which_the_client_has_no_room_any_more_are_an_error(
    kafka: FakeKafka,
) -> None:
    writer = started(sink(), context())
    token = pre_committed(writer, 1, "a", "b")
    kafka.queue_size = 0
    with pytest.raises(ConfigError, match=r"raise them above"):
        writer.commit(token)
    kafka.queue_size = 1
    writer.commit(token)
    assert shown(kafka) == ["a", "b"]


def test_records_are_not_moved_by_a_sink_with_another_prefix(kafka: FakeKafka) -> None:
    token = pre_committed(started(sink(), context(1)), 1, "a")
    with pytest.raises(RestoreError, match="stop it with a savepoint, which commits this"):
        started(sink(prefix="other"), context(2), token)
    with pytest.raises(RestoreError, match="a transaction of sink 'sink'"):
        started(sink(), context(2), b"\x01")
    started(sink(), context(3), token)
    assert shown(kafka) == ["a"]
    # Nothing waits under the old prefix any more.
    writer = started(sink(prefix="other"), context(1), token)
    writer.commit(pre_committed(writer, 2, "b"))
    assert shown(kafka) == ["a", "b"]


def test_a_sink_that_is_at_least_once_from_now_on_commits_what_was_pre_committed(
    kafka: FakeKafka,
) -> None:
    token = pre_committed(started(sink(), context(1)), 1, "a")
    committed(started(sink(exactly_once=False), context(2), token), "b")
    assert shown(kafka) == ["a", "b"]


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
    committed(started(sink(**options, exactly_once=exactly_once), context()), record)
    (entry,) = kafka.visible("out")
    assert (entry.key, entry.value, entry.headers, entry.timestamp) == expected


@pytest.mark.parametrize("exactly_once", [True, False])
def test_a_function_may_choose_topic_and_partition(kafka: FakeKafka, exactly_once: bool) -> None:
    kafka.create("more", 3)
    to = sink(lambda r: r[0], partition=lambda r: r[1], exactly_once=exactly_once)
    committed(started(to, context()), ("more", 2), ("more", True), ("out", 0))
    assert [len(kafka.visible("more", n)) for n in range(3)] == [0, 1, 1]
    assert len(kafka.visible("out")) == 1


@pytest.mark.parametrize("exactly_once", [True, False])
def test_a_topic_that_a_function_chooses_is_made_on_request_alone(
    kafka: FakeKafka, exactly_once: bool
) -> None:
    def written(**options: Any) -> None:
        writer = started(sink(lambda r: r, exactly_once=exactly_once, **options), context())
        committed(writer, "made", "out", "made")

    with pytest.raises(ObjectNotFoundError, match=r"topic 'made'.*pass create="):
        written()
    written(create=2)
    assert sorted(len(kafka.visible("made", n)) for n in range(2)) == [0, 2]
    assert shown(kafka) == ["out"]


@pytest.mark.parametrize("topic", ["out", lambda record: "out"])
@pytest.mark.parametrize("exactly_once", [True, False])
def test_a_partition_that_a_topic_lacks_ends_the_job_at_once(
    kafka: FakeKafka, topic: Any, exactly_once: bool
) -> None:
    job = Job("words")
    chosen = sink(topic, partition=lambda record: record, exactly_once=exactly_once)
    job.source(Portions({"all": [0, 7]})).sink(chosen)
    with pytest.raises(UserFunctionError, match="0 to 0, as topic 'out' has 1; found 7"):
        run(job, MemoryStore(), config(parallelism=1))


def test_a_partition_is_there_once_its_topic_has_more(kafka: FakeKafka) -> None:
    writer = started(sink(partition=lambda record: record, exactly_once=False), context())
    writer.write([0])
    writer.pre_commit(CheckpointId(1))
    kafka.topics["out"] += [Partition(), Partition()]
    writer.write([2])
    writer.pre_commit(CheckpointId(2))
    assert [len(kafka.visible("out", n)) for n in range(3)] == [1, 0, 1]


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


def test_a_transaction_takes_no_longer_than_the_user_and_so_the_brokers_let_it(
    kafka: FakeKafka,
) -> None:
    kafka.longest_transaction_ms = 20_000
    with pytest.raises(ConfigError, match="client=") as refused:
        started(sink(), context())
    assert "lower transaction.timeout.ms in client=" in str(refused.value)
    writer = started(sink(client={"transaction.timeout.ms": 20_000}), context())
    writer.commit(pre_committed(writer, 1, "a"))
    assert shown(kafka) == ["a"]
    with pytest.raises(ConfigError, match=r"transaction.timeout.ms in client=.*1000 milliseconds"):
        sink(client={"transaction.timeout.ms": "soon"})
