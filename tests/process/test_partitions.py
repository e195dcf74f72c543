"""Processes share an application: they are killed, stopped and woken up while partitions move, and
every word counts once.
"""

import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import tidelog
from tests.process import harness
from tests.process.partition_worker import STATES
from tests.support import cli
from tests.support.depth import more_in_depth

PARTITIONS = 5
WORKERS = 3
WORDS = more_in_depth(10_000, 250_000)
SEEDS = more_in_depth([1], [*range(1, 5)])


class Process:
    """A worker as its coordinator knows it."""

    def __init__(self, directory: Path, number: int) -> None:
        self.errors = (directory / f"errors-{number}.txt").open("w+")
        paths = [directory / each for each in ("store", "in", "released")]
        self.process = harness.started(
            *map(str, paths),
            str(PARTITIONS),
            program="tests.process.partition_worker",
            stdin=subprocess.PIPE,
            stderr=self.errors,
        )
        self.fenced: list[int] = []
        self.stopped = False
        self._told = self._answered = 0

    def tell(self, verb: str, *partitions: int) -> None:
        """Send a command, and wait for nothing."""
        assert self.process.stdin is not None
        self._told += 1
        self.process.stdin.write(json.dumps([self._told, verb, partitions]) + "\n")
        self.process.stdin.flush()

    def ask(self, verb: str, *partitions: int) -> None:
        """Send a command, and wait until it and all before are carried out."""
        self.tell(verb, *partitions)
        while self._answered < self._told:
            self.hear()

    def hear(self) -> None:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, Path(self.errors.name).read_text()
        said: list[Any] = json.loads(line)
        if said[0] == "fenced":
            self.fenced.append(said[1])
        else:
            self._answered = said[0]

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def __enter__(self) -> "Process":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        for each in (self.process.stdin, self.process.stdout, self.errors):
            assert each is not None
            each.close()


class Coordinator:
    """Gives every partition to one worker, as far as it knows."""

    def __init__(self, directory: Path, rng: random.Random, processes: ExitStack) -> None:
        self.directory, self.rng, self.processes = directory, rng, processes
        self.started = 0
        self.workers = [self.start() for _ in range(WORKERS)]
        self.zombies: list[Process] = []
        self.owners = {p: self.workers[p % WORKERS] for p in range(PARTITIONS)}
        for worker in self.workers:
            worker.tell("assign", *self.of(worker))

    def start(self) -> Process:
        self.started += 1
        return self.processes.enter_context(Process(self.directory, self.started))

    def of(self, worker: Process) -> list[int]:
        return [p for p, owner in self.owners.items() if owner is worker]

    def give(self, partitions: list[int]) -> None:
        """To anybody who lives."""
        for partition in partitions:
            self.owners[partition] = chosen = self.rng.choice(self.workers)
            chosen.tell("assign", partition)

    def move(self) -> None:
        """As in a rebalance: taken from one, then given to another."""
        partition = self.rng.randrange(PARTITIONS)
        self.owners[partition].ask("revoke", partition)
        self.give([partition])

    def snatch(self) -> None:
        """The owner is not told before the next one has opened it."""
        partition = self.rng.randrange(PARTITIONS)
        former = self.owners[partition]
        self.give([partition])
        if self.owners[partition] is not former:
            former.ask("lose", partition)

    def kill(self) -> None:
        """At any moment, also while it opens what it was just given."""
        victim = self.workers.pop(self.rng.randrange(len(self.workers)))
        victim.signal(signal.SIGKILL)
        self.workers.append(self.start())
        self.give(self.of(victim))

    def suspend(self) -> None:
        """For longer than the coordinator's patience: it wakes up as a zombie."""
        zombie = self.workers.pop(self.rng.randrange(len(self.workers)))
        zombie.signal(signal.SIGSTOP)
        self.workers.append(self.start())
        self.zombies.append(zombie)
        self.give(self.of(zombie))

    def wake(self) -> None:
        """A stopped process goes on; later it is told that its partitions were taken."""
        if self.zombies:
            zombie = self.zombies.pop()
            zombie.signal(signal.SIGCONT)
            time.sleep(self.rng.random() * 0.2)
            zombie.ask("lose", *range(PARTITIONS))
            zombie.signal(signal.SIGKILL)

    def mend(self) -> None:
        """Who was fenced and is the owner all the same, by a zombie in the middle of `assign`."""
        for worker in self.workers:
            worker.ask("revoke")
            for partition in worker.fenced:
                if self.owners[partition] is worker:
                    worker.tell("assign", partition)
            worker.fenced.clear()


@pytest.mark.parametrize("seed", SEEDS)
def test_every_word_is_counted_once_whoever_has_its_partition(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    (tmp_path / "in").mkdir()
    words: dict[int, list[str]] = {}
    for partition in range(PARTITIONS):
        words[partition] = [f"w{min(rng.randrange(99), rng.randrange(99))}" for _ in range(WORDS)]
        lines = [" ".join(words[partition][at : at + 5]) for at in range(0, WORDS, 5)]
        (tmp_path / "in" / f"{partition}.txt").write_text("\n".join(lines) + "\n")
    with ExitStack() as processes:
        coordinator = Coordinator(tmp_path, rng, processes)
        actions = [
            *(coordinator.move, coordinator.snatch, coordinator.kill),
            *(coordinator.suspend, coordinator.wake, coordinator.wake),
        ]
        for action in more_in_depth(rng.sample(actions, 6), rng.choices(actions, k=120)):
            time.sleep(rng.random() * 0.3)
            action()
            coordinator.mend()
        while coordinator.zombies:
            coordinator.wake()
        for worker in coordinator.workers:
            worker.signal(signal.SIGKILL)
        (tmp_path / "released").touch()
        coordinator.start().ask("finish", *range(PARTITIONS))
    url = str(tmp_path / "store")
    with tidelog.open_partitions(url, STATES, partitions=PARTITIONS) as app:
        for partition, db in app.assign(range(PARTITIONS)).items():
            size = os.stat(tmp_path / "in" / f"{partition}.txt").st_size  # noqa: PTH116
            assert db.position == {"input": size}
            counts = {word: db.key(word).count.get() for word in set(words[partition])}
            assert counts == Counter(words[partition])
    assert cli.tidelog("inspect", url, "--deep").exit_code == 0
