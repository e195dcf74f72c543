"""What a user sees when brokers, topics, offsets or messages are not as the job needs them."""

import logging
from asyncio import CancelledError
from pathlib import Path
from typing import Any

import pytest

from tests.kafka.jobs import read, source, values
from tests.support.kafka import Topics
from tests.support.kafka_broker import Broker
from tidelog import (
    CorruptObjectError,
    DeadLetterTopic,
    KafkaRecord,
    KafkaSource,
    ObjectNotFoundError,
    StoreUnreachableError,
)


def events(caplog: pytest.LogCaptureFixture, name: str) -> list[str]:
    return [r.getMessage() for r in caplog.records if getattr(r, "event", "") == name]


def test_no_broker_at_the_start_is_an_error_after_the_time_that_was_given(
    no_broker: str, tmp_path: Path
) -> None:
    with pytest.raises(StoreUnreachableError) as error:
        read(KafkaSource("orders", bootstrap=no_broker, connect_s=0.5), tmp_path)
    text = str(error.value)
    assert "topic 'orders' in Kafka at 127.0.0.1:1; expected an answer within 0.5 s" in text
    assert "Connection refused" in text and "connect_s" in text and "a retry is safe" in text


def test_a_job_waits_for_brokers_that_went_away_and_not_for_ever(
    broker: Broker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tidelog")
    topics = Topics(broker.bootstrap)
    topic = topics.new()
    topics.write(topic, ["before"])
    killed: list[bool] = []

    def comes_back(found: list[KafkaRecord]) -> bool:
        if found and not killed:
            broker.kill()
            killed.append(True)
        elif events(caplog, "kafka_away") and len(killed) == 1:
            broker.start()
            topics.write(topic, ["after"])
            killed.append(True)
        return len(found) == 2

    found = read(source(topics, topic, rediscover_s=0.2), tmp_path / "store", comes_back)
    assert values(found) == ["before", "after"]
    assert "the source waits, 600 s at most" in events(caplog, "kafka_away")[0]
    assert events(caplog, "kafka_back")
    topics.write(topic, ["last"])

    def stays_away(found: list[KafkaRecord]) -> bool:
        if found:
            broker.kill()
        return False

    with pytest.raises(StoreUnreachableError) as error:
        read(source(topics, topic, outage_s=0.5), tmp_path / "store", stays_away)
    assert "expected an answer within 0.5 s, as outage_s says" in str(error.value)
    assert "goes on from its last checkpoint (a retry is safe)" in str(error.value)


def stopped_at(topics: Topics, store: Path) -> str:
    """A topic of which a job has read ten messages."""
    topic = topics.new()
    topics.write(topic, map(str, range(10)))
    read(source(topics, topic), store, lambda found: len(found) == 10)
    return topic


@pytest.mark.parametrize(("policy", "stop"), [("fail", None), ("earliest", "latest")])
def test_a_topic_that_was_made_again_is_an_error_and_no_new_beginning(
    topics: Topics, tmp_path: Path, policy: Any, stop: Any
) -> None:
    topic = stopped_at(topics, tmp_path)
    topics.delete(topic)
    topics.write(topics.new(name=topic), ["other"])
    again = source(topics, topic, stop=stop, on_missing_offset=policy)
    with pytest.raises(ObjectNotFoundError) as error:
        read(again, tmp_path)
    assert f"topic '{topic}', partition 0, offset 10" in str(error.value)
    assert "an end at offset 1: the topic was made again" in str(error.value)
    assert "--allow-non-restored-state" in str(error.value) and "do not retry" in str(error.value)


@pytest.mark.parametrize("policy", ["fail", "earliest", "latest"])
def test_messages_that_retention_has_removed_are_an_error_unless_the_user_goes_on(
    topics: Topics, tmp_path: Path, policy: Any, caplog: pytest.LogCaptureFixture
) -> None:
    topic = stopped_at(topics, tmp_path)
    topics.write(topic, map(str, range(10, 20)))
    topics.drop_before(topic, 0, 15)
    again = source(topics, topic, stop="latest", on_missing_offset=policy)
    if policy == "fail":
        with pytest.raises(ObjectNotFoundError) as error:
            read(again, tmp_path)
        assert f"topic '{topic}', partition 0, offset 10" in str(error.value)
        assert "messages from offset 15 to 20" in str(error.value)
        assert 'on_missing_offset="earliest"' in str(error.value)
        return
    left = ["15", "16", "17", "18", "19"]
    assert values(read(again, tmp_path)) == (left if policy == "earliest" else [])
    (text,) = events(caplog, "kafka_offset_missing")
    assert f"topic '{topic}', partition 0 has no offset 10 any more" in text


BROKEN = ['{"n":0}', "no json", '{"n":2}', '{"n":3', '{"n":4}']


def test_a_message_that_does_not_decode_stops_the_job_behind_those_before_it(
    topics: Topics, tmp_path: Path
) -> None:
    topic = topics.new()
    topics.write(topic, BROKEN)
    found: list[Any] = []
    with pytest.raises(CorruptObjectError) as error:
        of_json = source(topics, topic, value="json")
        read(of_json, tmp_path, lambda got: bool(found.append(list(got))))
    assert values(found[-1]) == [{"n": 0}] or not found[-1]
    assert f"topic '{topic}', partition 0, offset 1" in str(error.value)
    assert "malformed" in str(error.value) and "DeadLetterTopic" in str(error.value)


@pytest.mark.parametrize("raised", [SystemExit(1), CancelledError()])
def test_a_decoder_that_exits_or_cancels_has_failed(
    topics: Topics, tmp_path: Path, raised: BaseException
) -> None:
    def leave(data: bytes) -> str:
        if data == b"bad":
            raise raised
        return data.decode()

    topic = topics.new()
    topics.write(topic, ["good", "bad", "fine"])
    with pytest.raises(CorruptObjectError, match=f"offset 1; .*{type(raised).__name__}"):
        read(source(topics, topic, value=leave), tmp_path / "fails")
    lenient = source(topics, topic, value=leave, on_error="skip", stop="latest")
    assert values(read(lenient, tmp_path / "skips")) == ["good", "fine"]


def test_messages_that_do_not_decode_are_left_out_counted_and_logged(
    topics: Topics, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topic = topics.new()
    topics.write(topic, [*BROKEN, "the last one, too"])
    lenient = source(topics, topic, value="json", on_error="skip", stop="latest")
    assert values(read(lenient, tmp_path)) == [{"n": 0}, {"n": 2}, {"n": 4}]
    assert lenient.skipped == 3
    (text,) = events(caplog, "kafka_messages_skipped")
    assert ": 1 message, the last one" in text and f"'{topic}'" in text


def test_messages_that_a_function_does_not_take_go_to_the_dead_letters(
    topics: Topics, tmp_path: Path
) -> None:
    topic, letters = topics.new(), topics.new()
    topics.write(topic, ["1", "one", "3"], key="k", headers=[("trace", b"7")])
    numbers = source(topics, topic, value=int, on_error=DeadLetterTopic(letters), stop="latest")
    assert values(read(numbers, tmp_path)) == [1, 3]
    (letter,) = topics.read(letters, 1)
    assert (letter.key(), letter.value()) == (b"k", b"one")
    headers = dict(letter.headers())
    assert headers["trace"] == b"7" and headers["tidelog.topic"] == topic.encode()
    assert (headers["tidelog.partition"], headers["tidelog.offset"]) == (b"0", b"1")
    assert b"ValueError: invalid literal" in headers["tidelog.error"]
