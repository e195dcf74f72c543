"""The Kafka sink under a model: any call may fail, end the process, or hold it while others run.

A world is one store of checkpoints, one cluster in memory and the starts of a job, all by a seed.
Each record names the start that wrote it, so what a reader sees can be laid to somebody.
"""

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from confluent_kafka import KafkaError

from tests.support.depth import more_in_depth
from tests.support.fake_kafka import FakeKafka, failure
from tidelog import FencedError, KafkaSink, SinkContext, TidelogError
from tidelog.ids import CheckpointId, Generation

SEEDS = more_in_depth(25, 2_500)
TOGETHER = 25
KEYS = 6
RETAINED = 3
TARGETS = ("even", "odd")


class Crash(BaseException):
    """The process is gone."""


@dataclass(frozen=True)
class Checkpoint:
    number: int
    position: int
    tokens: tuple[tuple[int, bytes], ...] = ()
    """With the number of the subtask."""


@dataclass
class World:
    rng: Random
    kafka: FakeKafka
    branching: bool
    checkpoints: list[Checkpoint] = field(default_factory=lambda: [Checkpoint(0, 0)])
    promised: set[str] = field(default_factory=set)
    """Records of transactions that a completed checkpoint names."""
    records_of: dict[bytes, list[str]] = field(default_factory=dict)
    generation: int = 0
    newest: "Start | None" = None
    settled: tuple[int, set[str]] | None = None
    """The newest start that has recovered, and what older ones had shown by then."""
    depth: int = 0
    quiet: bool = False

    def call(self, name: str, effect: Callable[[], Any]) -> Any:
        """A call of the client: it may fail, or end or hold the process, before or after."""
        roll = 1.0 if self.quiet else self.rng.random()
        if roll < 0.004:
            self.interrupt()
        elif roll < 0.016:
            self.fail(name)
        result = effect()
        if 0.02 < roll < 0.024:
            self.interrupt()
        elif 0.024 < roll < 0.036:
            self.fail(name)
        return result

    def fail(self, name: str) -> None:
        if self.rng.random() < 0.3:
            raise Crash
        if name in ("poll", "flush"):
            return  # these report failures of messages, and have none of their own
        how = self.rng.choice(({"retriable": True}, {"abort": True}, {"fatal": True}, {}))
        raise failure(self.rng.choice((KafkaError._TIMED_OUT, KafkaError._TRANSPORT)), **how)

    def interrupt(self) -> None:
        """Hold the caller while a newer start runs for a while."""
        if self.depth < 2:
            self.depth += 1
            with suppress(Crash):
                self.run(self.rng.randrange(1, 12), fresh=True)
            self.depth -= 1

    def run(self, steps: int, *, fresh: bool) -> None:
        start = self.newest
        if fresh or start is None or start.dead:
            start = Start.begin(self)
        others = [start]
        for _ in range(steps):
            start.step(self.rng.choice(("write", "write", "checkpoint", "checkpoint", "commit")))
            self.check()
            if start.dead or self.rng.random() < 0.05:
                start = Start.begin(self)
                others.append(start)
            if self.rng.random() < 0.2:  # an older one that is still there
                self.rng.choice(others).step(self.rng.choice(("write", "checkpoint", "commit")))
                self.check()

    def visible(self) -> list[str]:
        return [
            (entry.value or b"").decode()
            for topic in TARGETS
            for entry in self.kafka.visible(topic)
        ]

    def check(self) -> None:
        seen = self.visible()
        assert len(seen) == len(set(seen)), "a record is shown twice"
        assert self.promised.issuperset(seen), "a record of no checkpoint is shown"
        for topic in TARGETS:
            newest: Counter[tuple[str, int]] = Counter()
            for entry in self.kafka.visible(topic):
                generation, number = (entry.value or b"").decode().split(":")
                key = (generation, int(number) % KEYS)
                assert newest[key] <= int(number), "records of a key change places"
                newest[key] = int(number)
        if self.settled is not None:
            generation, before = self.settled
            assert older(seen, generation) == before, "a zombie has moved something"

    def retained(self) -> list[Checkpoint]:
        return self.checkpoints[-RETAINED:]


def older(records: list[str], generation: int) -> set[str]:
    return {record for record in records if int(record.split(":")[0]) < generation}


class Start:
    """One start of the job, with a writer for each of its subtasks."""

    def __init__(self, world: World, generation: int, parallelism: int, of: Checkpoint) -> None:
        self.world = world
        self.generation = generation
        self.parallelism = parallelism
        self.position = of.position
        self.dead = False
        self.error: TidelogError | None = None
        self.writers: list[Any] = []
        self.written: list[list[str]] = [[] for _ in range(parallelism)]
        self.open: list[tuple[int, bytes]] = []
        self.to_commit: list[tuple[int, bytes]] = []

    @classmethod
    def begin(cls, world: World) -> "Start":
        retained = world.retained()
        branch = world.branching and world.rng.random() < 0.2
        of = world.rng.choice(retained) if branch else retained[-1]
        world.generation += 1
        start = cls(world, world.generation, world.rng.randrange(1, 4), of)
        world.newest = start
        world.settled = None
        named = tuple(token for checkpoint in retained for _, token in checkpoint.tokens)
        start._alive(lambda: start._open(of, named))
        if not start.dead and start is world.newest:
            seen = world.visible()
            owed = {r for _, token in of.tokens for r in world.records_of[token]}
            assert owed.issubset(seen), "a restored transaction is not shown"
            world.settled = start.generation, older(seen, start.generation)
        return start

    def _open(self, of: Checkpoint, named: tuple[bytes, ...]) -> None:
        sink = KafkaSink(
            lambda record: TARGETS[int(record.split(":")[1]) % 2],
            bootstrap="kafka:9092",
            value="text",
            create=1,
        )
        retained = None if self.world.rng.random() < 0.05 else named
        for subtask in range(self.parallelism):
            context = SinkContext(
                "job", "out", subtask, self.parallelism, Generation(self.generation), "a", retained
            )
            writer = sink.open(context)
            self.writers.append(writer)
            writer.recover([t for owner, t in of.tokens if context.recovers_for(owner)])

    def step(self, name: str) -> None:
        if not self.dead:
            self._alive(getattr(self, f"_{name}"))

    def _alive(self, action: Callable[[], None]) -> None:
        """An error ends the job in good order, a crash without a word."""
        try:
            action()
        except TidelogError as error:
            self.dead, self.error = True, error
            with suppress(TidelogError, Crash):
                for writer in self.writers:
                    writer.close()
        except Crash:
            self.dead = True

    def _write(self) -> None:
        for _ in range(self.world.rng.randrange(1, 8)):
            number = self.position
            subtask = number % KEYS % self.parallelism
            record = f"{self.generation}:{number}"
            self.position += 1
            self.written[subtask].append(record)
            self.writers[subtask].write([record])
            if self.writers[subtask].full():
                self.writers[subtask].make_room()

    def _checkpoint(self) -> None:
        given_up = False
        for subtask, writer in enumerate(self.writers):
            try:
                token = writer.pre_commit(CheckpointId(1))
            except FencedError:
                raise
            except TidelogError:
                given_up = True
                continue
            if token is not None:
                self.open.append((subtask, token))
                self.world.records_of[token] = self.written[subtask]
                self.written[subtask] = []
        world = self.world
        if self is not world.newest:
            raise FencedError("checkpoint", action="none")
        if not given_up:
            world.checkpoints.append(
                Checkpoint(len(world.checkpoints), self.position, tuple(self.open))
            )
            world.promised.update(r for _, token in self.open for r in world.records_of[token])
            self.to_commit = list(self.open)

    def _commit(self) -> None:
        for subtask, token in list(self.to_commit):
            self.writers[subtask].commit(token)
            self.to_commit.remove((subtask, token))
            self.open.remove((subtask, token))


@pytest.mark.parametrize("first", range(0, SEEDS, TOGETHER))
def test_every_record_is_shown_once_whatever_happens(
    first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(first, first + TOGETHER):
        rng = Random(seed)
        kafka = FakeKafka(rng)
        kafka.queue_size = rng.choice((3, 1000))
        for topic in TARGETS:
            kafka.create(topic)
        world = World(rng, kafka, branching=seed % 2 == 0)
        kafka.call = world.call
        # Every record in a transaction of its own, or all of a range in one.
        part = -1.0 if seed % 3 == 0 else 0.25
        monkeypatch.setattr("tidelog.connectors.kafka.writing.mover._PART", part)
        monkeypatch.setattr("tidelog.connectors.kafka.writing.producing._PAUSE_S", 0.0)
        monkeypatch.setattr("tidelog.connectors.kafka.client.library", lambda k=kafka: k.library)
        try:
            world.run(25, fresh=True)
            world.quiet = True
            last = Start.begin(world)
            last.step("write")
            for name in ("checkpoint", "commit") * 2:
                last.step(name)
            assert not last.dead, last.error
            world.check()
            if not world.branching:
                numbers = sorted(int(record.split(":")[1]) for record in world.visible())
                assert numbers == list(range(last.position))
        except BaseException:
            print("seed", seed)
            raise
