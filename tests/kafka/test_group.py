"""Library processes in one consumer group: some are killed, stopped and joined by others at
random moments, and every message counts once.
"""

import random
import signal
import subprocess
import time
from collections import Counter
from contextlib import closing
from itertools import chain
from pathlib import Path

import pytest
from confluent_kafka import Producer

import tidelog
from tests.process import harness
from tests.support.depth import more_in_depth
from tests.support.kafka import Topics
from tidelog import ValueState

PARTITIONS = more_in_depth(4, 6)
MEMBERS = more_in_depth(2, 3)
ROUNDS = more_in_depth(1, 8)
ACTIONS = {"range": ["kill", "start"], "cooperative-sticky": ["suspend", "leave"]}
"""What becomes of the consumers of a strategy; in deep runs all of it does with each."""
PORTION = 1500
"""Messages that come between two actions."""


class Group:
    """The processes of a consumer group, and the messages of its topic."""

    def __init__(self, topics: Topics, directory: Path, strategy: str, rng: random.Random) -> None:
        self.bootstrap, self.directory = topics.bootstrap, directory
        self.topic, self.strategy, self.rng = topics.new(PARTITIONS), strategy, rng
        self.producer = Producer({"bootstrap.servers": topics.bootstrap, "log_level": 0})
        self.sent = Counter[tuple[int, bytes]]()
        self.members: list[subprocess.Popen[str]] = []
        self.stopped: list[subprocess.Popen[str]] = []

    def start(self, strategy: str | None = None, group: str = "counting") -> None:
        where = [self.bootstrap, f"{group}-{self.topic}", str(self.directory / "store"), self.topic]
        program = "tests.kafka.group_worker"
        with (self.directory / "errors.txt").open("ab") as errors:
            strategy = strategy or self.strategy
            self.members.append(harness.started(*where, strategy, program=program, stderr=errors))

    def send(self) -> None:
        for _ in range(PORTION):
            key, partition = b"u%d" % self.rng.randrange(50), self.rng.randrange(PARTITIONS)
            self.sent[partition, key] += 1
            self.producer.produce(self.topic, b"", key, partition)
        assert self.producer.flush(harness.GIVE_UP_S) == 0

    def positions(self) -> int:
        """How many messages durable checkpoints say are done."""
        done = 0
        for path in self.directory.glob("store/partitions/*"):
            try:
                with tidelog.open(str(path), checkpoint="latest") as view:
                    done += (view.position or {}).get(self.topic, 0)
            except tidelog.TidelogError:
                pass  # nothing is stored yet, or it was dropped while it was read
        return done

    def wait_for_progress(self) -> None:
        """Until something more is durable, or all is, so that what comes next meets work."""
        wanted = min(self.positions() + 1, self.sent.total())
        give_up = time.monotonic() + harness.GIVE_UP_S
        while self.positions() < wanted:
            assert time.monotonic() < give_up, (self.directory / "errors.txt").read_text()
            self.supervise()
            time.sleep(0.2)

    def supervise(self) -> None:
        """Start again who has ended, such as one that was fenced."""
        ended = [each for each in self.members if each.poll() is not None]
        for each in ended:
            self.members.remove(each)
            self.start()

    def kill(self) -> None:
        self.members.pop(self.rng.randrange(len(self.members))).kill()

    def leave(self) -> None:
        """Ctrl-C: it takes its last checkpoints and says so to the group, if it is still of it."""
        leaving = self.rng.choice(self.members)
        # Interrupted before, while Python imports `site`, it would end with 1 instead.
        leaving.stdout.readline()
        leaving.send_signal(signal.SIGINT)
        ended = leaving.wait(harness.GIVE_UP_S)
        self.members.remove(leaving)
        errors = (self.directory / "errors.txt").read_text()
        # A member that was suspended for too long may have found another in its place.
        assert ended in (0, -signal.SIGINT) or "FencedError" in errors, errors

    def suspend(self) -> None:
        """The lid of the laptop: down for longer than the group waits."""
        zombie = self.members.pop(self.rng.randrange(len(self.members)))
        zombie.send_signal(signal.SIGSTOP)
        self.stopped.append(zombie)

    def wake(self) -> None:
        while self.stopped:
            zombie = self.stopped.pop()
            zombie.send_signal(signal.SIGCONT)
            self.members.append(zombie)

    def close(self) -> None:
        for each in (*self.members, *self.stopped):
            each.kill()
            each.wait()
        self.members.clear()
        self.stopped.clear()


# Processes are suspended, and leave, in every run of tests/process/test_partitions.py.
@pytest.mark.parametrize("strategy", more_in_depth(["range"], list(ACTIONS)))
def test_every_message_is_counted_once_whatever_becomes_of_the_consumers(
    strategy: str, topics: Topics, tmp_path: Path
) -> None:
    rng = random.Random(strategy)
    with closing(Group(topics, tmp_path, strategy, rng)) as group:
        for _ in range(MEMBERS):
            group.start()
        for _ in range(ROUNDS):
            actions = more_in_depth(ACTIONS[strategy], [*chain(*ACTIONS.values())])
            for action in rng.sample(actions, len(actions)):
                group.send()
                group.wait_for_progress()
                getattr(group, action)()
                if len(group.members) < MEMBERS:
                    group.start()
            group.send()
            group.wait_for_progress()
            group.wake()
        group.send()
        group.wait_for_progress()
        group.close()
        group.start("--to-the-end", "last")
        errors = tmp_path / "errors.txt"
        assert group.members[-1].wait(harness.GIVE_UP_S) == 0, errors.read_text()
        sent, topic = group.sent, group.topic
    with tidelog.open_partitions(str(tmp_path / "store"), {"orders": ValueState(int)}) as app:
        app.assign(range(PARTITIONS))
        found = {each: app[each[0]].key(each[1]).orders.get() for each in sent}
        assert found == sent
        for partition, db in ((each, app[each]) for each in app):
            messages = sum(count for (where, _), count in sent.items() if where == partition)
            assert db.position == {topic: messages}
