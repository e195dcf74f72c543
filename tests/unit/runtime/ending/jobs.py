"""Jobs of which a part ends early, run in virtual time, and all they stored."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.support.pipelines import Outside, Portions, acted_on, config
from tidelog import Checkpoint, Job, JobConfig, JobRunner, SplitReader
from tidelog.checkpoint.manifest import OperatorState
from tidelog.storage.port import ObjectStore

KEEP_ALL = 10_000


class Counted(Portions):
    """Counts how often its splits were opened."""

    opened = 0

    def open(self, split: str, position: Any) -> SplitReader:
        self.opened += 1
        return super().open(split, position)


def short(splits: int = 1) -> Counted:
    """Ends after about two seconds."""
    return Counted({f"short-{s}": [f"w{n % 3}" for n in range(7)] for s in range(splits)})


def long(splits: int = 1, length: int = 45) -> Counted:
    """Lasts many checkpoints longer."""
    return Counted({f"long-{s}": [f"w{(s + n) % 5}" for n in range(length)] for s in range(splits)})


def uneven(splits: int = 6) -> Counted:
    """One source whose splits end one after the other, so its subtasks do too."""
    return Counted({f"s{s}": [f"w{n % 4}" for n in range(5 + 12 * s)] for s in range(splits)})


def merged(left: Portions, right: Portions, sink: Outside) -> Job:
    """Both sources into one count."""
    job = Job("merged")
    stream = job.source(left, name="left").union(job.source(right, name="right"))
    stream.key_by(lambda w: w).count(name="aggregate").sink(sink)
    return job


def side_by_side(left: Portions, right: Portions, first: Outside, second: Outside) -> Job:
    """Two pipelines that share nothing but the job."""
    job = Job("side-by-side")
    for name, source, sink in (("left", left, first), ("right", right, second)):
        counted = job.source(source, name=name).key_by(lambda w: w).count(name=f"{name}-count")
        counted.rebalance().map(lambda r: r, name=f"{name}-out").sink(sink, name=f"{name}-sink")
    return job


def settings(**changes: Any) -> JobConfig:
    """Every checkpoint stays, so a test can look at all of them."""
    return config(**{"retain": KEEP_ALL, **changes})


def run_for(
    job: Job,
    store: ObjectStore,
    seconds: float,
    chosen: JobConfig | None = None,
    *,
    look: Callable[[JobRunner], None] = lambda _: None,
) -> None:
    """Run for some virtual time, look at the running job, and crash it."""

    async def act(runner: JobRunner) -> None:
        look(runner)

    acted_on(job, store, act, at=seconds, settings=chosen or settings(), crash=True)


def run_until(
    job: Job, store: ObjectStore, reached: Callable[[JobRunner], bool], chosen: JobConfig
) -> None:
    """Run until something is reached, and crash."""

    async def act(runner: JobRunner) -> None:
        while not reached(runner):
            await runner.effects.clock.sleep(0.2)
            assert runner.running, "it ended before it was to crash"

    acted_on(job, store, act, at=0, settings=chosen, crash=True)


def exited(runner: JobRunner, vertex: str) -> int:
    """How many subtasks of a vertex have exited."""
    tasks = runner.incarnation.tasks if runner.incarnation is not None else []
    return sum(task.exited for task in tasks if task.id.operator == vertex)


def assert_counted(*pipelines: tuple[Portions, Outside], at: object = None) -> None:
    """Each has counted all that its source has, committed it, and left nothing open."""
    for source, sink in pipelines:
        assert sorted(sink.records) == sorted(Counter(source.records).items()), at
        assert sink.prepared == {}, at


def operator(checkpoint: Checkpoint, name: str) -> OperatorState:
    (found,) = [each for each in checkpoint.operators if each.id == name]
    return found
