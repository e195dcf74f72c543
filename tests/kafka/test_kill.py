"""Job and broker are killed at random moments: every message has its effect once, in order."""

import os
import random
import sqlite3
import subprocess
import time
from collections import defaultdict
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from tests.process.harness import Run, killed_at_last, wait_until
from tests.support.depth import more_in_depth
from tests.support.kafka import Topics, reason_without
from tests.support.kafka_broker import Broker
from tidelog.connectors.kafka.client import library

SEED = int(os.environ.get("TIDELOG_TEST_SEED", "20260101"))
WHAT = more_in_depth(("job", "job", "both"), (*["job"] * 8, "broker", "both"))
"""What is killed in some rounds."""
ROUNDS = more_in_depth(len(WHAT), 100)
KEYS = 7
MESSAGES = 400


@pytest.mark.timeout(more_in_depth(300, 3_600))
def test_killed_jobs_and_brokers_lose_nothing_and_double_nothing(tmp_path: Path) -> None:
    reason = reason_without()
    if reason is not None:
        pytest.skip(reason)
    rng = random.Random(SEED)
    print("seed", SEED)
    kills = [what for _ in range(ROUNDS // len(WHAT)) for what in rng.sample(WHAT, len(WHAT))]
    with Broker(tmp_path / "kafka") as broker, ExitStack() as running:
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
