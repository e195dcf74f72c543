"""Jobs that write to Kafka, killed at any moment like their broker: what a reader sees is right."""

import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kafka.killed_job import SPLITS, TOTAL
from tests.process.harness import Run, killed_at_last, wait_until
from tests.support.depth import more_in_depth
from tests.support.kafka import Topics, reason_without
from tests.support.kafka_broker import Broker
from tidelog.connectors.kafka.client import library

SEED = int(os.environ.get("TIDELOG_TEST_SEED", "20260101"))
ROUNDS = more_in_depth(4, 10)
SLOTS = (0, 2, 4, 3, 5)
"""After how many slots of its own a job is killed: none is in its start."""
BROKER_KILLS = more_in_depth(1, 3)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    reason = reason_without()
    if reason is not None:
        pytest.skip(reason)
    with Broker(tmp_path / "kafka") as broker:
        yield broker


class Reader:
    """A consumer that reads on and on, and sees what is committed alone."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, *, once: bool = True) -> None:
        kafka = library()
        self._consumer = kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "reader",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )
        self._consumer.assign([kafka.TopicPartition(topic, p, 0) for p in range(partitions)])
        self._eof = kafka.KafkaError._PARTITION_EOF
        self._once = once
        self.seen: Counter[str] = Counter()
        """The next number of each split."""
        self.repeated = 0

    def look(self, seconds: float = 0.3) -> None:
        """Read what has come; every number of a split follows the one before it."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for message in self._consumer.consume(1_000, 0.1):
                if message.error() is None:
                    self._take(message.key().decode(), int(message.value()))

    def look_for_all(self) -> None:
        give_up = time.monotonic() + 60
        while self.seen.total() < TOTAL * len(SPLITS) and time.monotonic() < give_up:
            self.look()
        self.look()
        assert dict(self.seen) == dict.fromkeys(SPLITS, TOTAL)

    def _take(self, split: str, number: int) -> None:
        if self._once:
            assert number == self.seen[split], "a record is twice or too late in the topic"
        assert number <= self.seen[split], "a record is missing before this one"
        self.repeated += number < self.seen[split]
        self.seen[split] = max(self.seen[split], number + 1)


@pytest.mark.parametrize("batch", range(more_in_depth(1, 10)))
def test_a_reader_sees_what_was_promised_however_often_job_and_broker_are_killed(
    batch: int, tmp_path: Path, broker: Broker
) -> None:
    """Each start has a parallelism of its own, and so the transactions of another one to move."""
    topics = Topics(broker.bootstrap)
    exactly, at_least = topics.new(2), topics.new(2)
    once = Reader(broker.bootstrap, exactly, 2)
    often = Reader(broker.bootstrap, at_least, 2, once=False)
    env = {"TIDELOG_TEST_KAFKA": f"{broker.bootstrap} {exactly} {at_least}"}
    run = Run(tmp_path, "tests.kafka.killed_job:numbers", env=env)
    rng = random.Random(SEED + batch)
    of_broker = set(rng.sample(range(ROUNDS), BROKER_KILLS))
    waits = [SLOTS[number % len(SLOTS)] for number in range(ROUNDS)]
    rng.shuffle(waits)
    for number in range(ROUNDS):
        parallelism = str(rng.randrange(1, 4))
        with killed_at_last(run.start("--parallelism", parallelism)) as process:
            slots = run.slots() + waits[number]
            print(f"round {number} parallelism {parallelism}: kill at slot {slots}", end=" ")
            wait_until(lambda slots=slots: run.slots() >= slots, process)
            time.sleep(rng.uniform(0, 0.3))
            if number in of_broker:
                print("broker first", end=" ")
                broker.kill()
                time.sleep(rng.uniform(0, 0.5))
                broker.start()
                seen = run.slots()
                wait_until(lambda seen=seen: run.slots() >= seen + 2, process)
        once.look()
        often.look(0.1)
        print("seen", dict(once.seen))
    assert 0 < once.seen.total() < TOTAL * len(SPLITS)
    run.release()
    run.finish("--parallelism", "2")
    once.look_for_all()
    often.look_for_all()
    assert often.repeated > 0
