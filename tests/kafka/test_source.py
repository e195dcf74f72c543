"""What a job gets of topics: every message once, in order within its partition, from where it was
left.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.first_jobs.programs import run
from tests.kafka.jobs import read, values
from tests.support.kafka import Topics
from tidelog import Callback, ConfigError, Job, KafkaRecord, KafkaSource
from tidelog.connectors.kafka.client import library
from tidelog.state.objects.classes import RecordTypes
from tidelog.state.objects.encoding import decode_records, encode_records


def source(topics: Topics, *names: str, **options: Any) -> KafkaSource:
    return KafkaSource(names, bootstrap=topics.bootstrap, **{"value": "text", **options})


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
    place = library().TopicPartition(topic, 0)
    (committed,) = group.committed([place])
    assert committed.offset == 2
    # Somebody sets the group back: only those who watch it see that.
    place.offset = 0
    group.commit(offsets=[place], asynchronous=False)
    group.close()
    topics.write(topic, ["c"], partition=0)
    topics.write(topic, ["d"], partition=1)
    bounded = source(topics, topic, group="watchers-1", stop="latest")
    assert sorted(values(read(bounded, tmp_path))) == ["c", "d"]
    group = library().Consumer({"bootstrap.servers": topics.bootstrap, "group.id": "watchers-1"})
    places = [library().TopicPartition(topic, each) for each in (0, 1)]
    assert [each.offset for each in group.committed(places)] == [3, 1]
    group.close()


def test_the_first_start_is_at_an_offset_a_time_or_the_end(topics: Topics, tmp_path: Path) -> None:
    topic = topics.new(2)
    for number in range(4):
        topics.write(topic, [str(number)], partition=0, timestamp=1_700_000_000_000 + number)

    def first(name: str, start: Any) -> list[Any]:
        return values(read(source(topics, topic, start=start, stop="latest"), tmp_path / name))

    assert first("offset", {(topic, 0): 3}) == ["3"]
    assert first("time", datetime.fromtimestamp(1_700_000_000.002, UTC)) == ["2", "3"]
    assert first("later", datetime(2100, 1, 1, tzinfo=UTC)) == []
    assert first("latest", "latest") == []


def test_what_comes_after_a_start_at_the_end_is_read_though_no_record_was_before(
    topics: Topics, tmp_path: Path
) -> None:
    topic = topics.new()
    topics.write(topic, ["before"])
    latest = source(topics, topic, start="latest", rediscover_s=0.1)
    assert read(latest, tmp_path, lambda _: slots(tmp_path) > 5) == []
    topics.grow(topic, 2)
    topics.write(topic, ["while it was down"], partition=0)
    topics.write(topic, ["in a new partition"], partition=1)
    again = source(topics, topic, start="latest", stop="latest")
    assert sorted(values(read(again, tmp_path))) == ["in a new partition", "while it was down"]


def slots(store: Path) -> int:
    names = [path.stem for path in (store / "checkpoints").glob("*.json")]
    return max(map(int, names), default=0)


def test_new_partitions_are_found_while_the_job_runs(topics: Topics, tmp_path: Path) -> None:
    topic = topics.new()

    def grows(found: list[KafkaRecord]) -> bool:
        if slots(tmp_path) > 3 and not grown:
            topics.grow(topic, 3)
            topics.write(topic, ["new"], partition=2)
            grown.append(True)
        return bool(found)

    grown: list[bool] = []
    reading = source(topics, topic, start="latest", rediscover_s=0.1)
    assert values(read(reading, tmp_path, grows)) == ["new"]


def test_a_partition_that_waits_for_another_ones_time_holds_it_up_in_no_way(
    topics: Topics, tmp_path: Path
) -> None:
    """More waits there than is held: it is paused, and read on when its time has come."""
    topic, many = topics.new(2), 30_000
    topics.write(topic, map(str, range(many)), partition=0, timestamp=9_000_000)
    for time in range(3):
        topics.write(topic, [str(time)] * many, partition=1, timestamp=(1 + time) * 1_000_000)
    found: list[KafkaRecord] = []
    job = Job("in step")
    (
        job.source(source(topics, topic, stop="latest"))
        .event_time(lambda record: record.timestamp, max_delay_ms=0, max_ahead_ms=1_000)
        .sink(Callback(found.append))
    )
    run(job, tmp_path)
    ahead = [record.offset for record in found if record.partition == 0]
    assert ahead == list(range(many)) and len(found) == 4 * many
    in_output = [at for at, record in enumerate(found) if record.partition == 0]
    # One portion is read before its time is known.
    assert in_output[many // 2] > 3 * many


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


def test_records_are_stored_in_flight() -> None:
    records = [
        KafkaRecord(b"k", {"n": [1]}, (("trace", b"1"), ("empty", None)), 5, "a", 0, 7),
        KafkaRecord(None, None, (), -1, "a", 0, 8),
    ]
    stored = encode_records(records, RecordTypes())
    assert decode_records(*stored, RecordTypes()) == records


@pytest.mark.parametrize(
    "options, named",
    [
        ({"topics": []}, "topics of a KafkaSource"),
        ({"topics": "no topic"}, "topics of a KafkaSource"),
        ({"start": "first"}, "start of a KafkaSource"),
        ({"start": datetime(2020, 1, 1)}, "a datetime with a time zone"),
        ({"start": {"a": 1}}, "start of a KafkaSource"),
        ({"stop": "earliest"}, "stop of a KafkaSource"),
        ({"value": "avro"}, "value of a KafkaSource"),
        ({"on_error": "ignore"}, "DeadLetterTopic"),
        ({"on_missing_offset": "skip"}, "on_missing_offset"),
        ({"rediscover_s": 0}, "rediscover_s"),
        ({"client": {"auto.offset.reset": "latest"}}, "use start= and on_missing_offset="),
        ({"client": {"enable.auto.commit": True}}, "after checkpoints"),
    ],
)
def test_a_wrong_option_is_an_error_at_once(options: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        KafkaSource(**{"topics": "a", "bootstrap": "b:9092", **options})
