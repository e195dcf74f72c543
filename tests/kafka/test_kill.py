"""Job and broker are killed at any moment: every message has its effect once, in order, and a
reader of what is written sees what is right."""

import os
import random
import sqlite3
import subprocess
import time
from collections import Counter, defaultdict
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from tests.kafka.killed_job import SPLITS, TOTAL
from tests.process.harness import Run, killed_at_last, wait_until
from tests.support.depth import more_in_depth
from tests.support.kafka import Topics
from tests.support.kafka_broker import Broker
from tidelog.connectors.kafka.client import library

SEED = int(os.environ.get("TIDELOG_TEST_SEED", "20260101"))
WHAT = more_in_depth(("job", "job", "both"), (*["job"] * 8, "broker", "both"))
"""What is killed in some rounds."""
ROUNDS = more_in_depth(len(WHAT), 100)
KEYS = 7
MESSAGES = 400


@pytest.mark.timeout(more_in_depth(300, 3_600))
def test_killed_jobs_and_brokers_lose_nothing_and_double_nothing(
    tmp_path: Path, broker: Broker
) -> None:
    rng = random.Random(SEED)
    print("seed", SEED)
    kills = [what for _ in range(ROUNDS // len(WHAT)) for what in rng.sample(WHAT, len(WHAT))]
    with ExitStack() as running:
        topics = Topics(broker.bootstrap)
        topic, database = topics.new(3), tmp_path / "numbers.db"
        writer = Writer(broker.bootstrap, topic)
        env = {
            "TIDELOG_TEST_TOPIC": topic,
            "TIDELOG_TEST_BROKER": broker.bootstrap,
            "TIDELOG_TEST_DATABASE": str(database),
        }
        parallel = ("--parallelism", "2")
        run = Run(tmp_path / "run", "tests.kafka.kill_job:job", parallel, env=env)

        def start() -> "subprocess.Popen[str]":
            return running.enter_context(killed_at_last(run.start(stderr=subprocess.DEVNULL)))

        job = start()
        for what in kills:
            writer.write(MESSAGES)
            slots, pause = run.slots() + rng.choice([0, 2, 4]), rng.uniform(0, 0.4)
            print(f"kill {what} at slot {slots} + {pause:.3f} s")
            wait_until(lambda slots=slots: run.slots() >= slots, job)  # type: ignore[misc]
            time.sleep(pause)
            if what != "broker":
                job.kill()
                job.wait()
            if what != "job":
                broker.kill()
                broker.start(wait=False)
            if what != "broker":
                job = start()
        job.kill()
        broker.wait()
        writer.finish()
        run.release()
        run.finish()
        check(database, writer.written)


class Writer:
    """Writes numbers by key, in order, also while the broker is away."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0}
        self._producer: Any = library().Producer(settings)
        self._topic = topic
        self.written = 0

    def write(self, messages: int) -> None:
        for _ in range(messages):
            key, number = f"key-{self.written % KEYS}", self.written // KEYS
            self._producer.produce(self._topic, str(number), key)
            self._producer.poll(0)
            self.written += 1

    def finish(self) -> None:
        assert self._producer.flush(120) == 0


def check(database: Path, written: int) -> None:
    of_key: dict[str, list[tuple[int, int]]] = defaultdict(list)
    with closing(sqlite3.connect(database)) as connection:
        rows = connection.execute("SELECT key, number, seen FROM numbers ORDER BY rowid")
        for key, number, seen in rows:
            of_key[key].append((number, seen))
    assert sum(map(len, of_key.values())) == written
    for key, found in of_key.items():
        assert found == [(number, number + 1) for number in range(len(found))], key


STARTS = more_in_depth(4, 10)
SLOTS = (0, 2, 4, 3, 5)
"""After how many slots of its own a job is killed: none is in its start."""
BROKER_KILLS = more_in_depth(1, 3)


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
    of_broker = set(rng.sample(range(STARTS), BROKER_KILLS))
    waits = [SLOTS[number % len(SLOTS)] for number in range(STARTS)]
    rng.shuffle(waits)
    for number in range(STARTS):
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
