"""Random owners: whatever order partitions are assigned, revoked, lost and snatched in, state and
position of each are those of a plain dictionary that is set back to the last durable checkpoint.
"""

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from copy import deepcopy
from pathlib import Path
from random import Random

import pytest

import tidelog
from tests.support.depth import more_in_depth
from tidelog import CheckpointConfig, ConfigError, FencedError, JobConfig, Partitions, ValueState

PROCESSES = 3
PARTITIONS = 3
STEPS = more_in_depth(60, 400)
SEEDS = range(more_in_depth(4, 60))
NEVER = JobConfig(checkpoint=CheckpointConfig(interval=3600), table="memory")


class State:
    """What a partition holds: counts by key, and how many steps were made."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.position = 0

    def count(self, key: str) -> None:
        self.counts[key] = self.counts.get(key, 0) + 1
        self.position += 1


class Model:
    """What every process believes to have, and what is durable."""

    def __init__(self) -> None:
        self.durable = {p: State() for p in range(PARTITIONS)}
        self.open: dict[tuple[int, int], State] = {}
        """By process and partition, also when the process was fenced since."""
        self.newest: dict[int, int] = {}
        """The process that opened a partition last; only it can make anything durable."""

    def assign(self, process: int, partition: int, *, ended: bool) -> None:
        if (process, partition) not in self.open or ended:
            self.open[process, partition] = deepcopy(self.durable[partition])
            self.newest[partition] = process

    def checkpoint(self, process: int, partition: int) -> bool:
        """Whether the process may go on."""
        mine = self.open[process, partition]
        if self.newest.get(partition) == process:
            self.durable[partition] = deepcopy(mine)
            return True
        return False


@pytest.mark.parametrize("seed", SEEDS)
def test_partitions_are_those_of_plain_dictionaries(seed: int, tmp_path: Path) -> None:
    rng, model, url = Random(seed), Model(), str(tmp_path / "store")
    with ExitStack() as processes:
        apps = [
            tidelog.open_partitions(url, {"n": ValueState(int)}, config=NEVER) for _ in range(3)
        ]
        for app in apps:
            processes.callback(lambda app=app: app.lose(range(PARTITIONS)))
        for _ in range(STEPS):
            process, partition = rng.randrange(PROCESSES), rng.randrange(PARTITIONS)
            rng.choices(ACTIONS, WEIGHTS)[0](model, apps[process], process, partition, rng)
            check(model, apps)
        for app in apps:
            app.lose(range(PARTITIONS))
            app.close()
    with tidelog.open_partitions(url, {"n": ValueState(int)}, config=NEVER) as app:
        for partition, db in app.assign(range(PARTITIONS)).items():
            wanted = model.durable[partition]
            assert (db.position or {"in": 0}) == {"in": wanted.position}
            assert {key: db.key(key).n.get() for key in wanted.counts} == wanted.counts


def check(model: Model, apps: list[Partitions]) -> None:
    for process, app in enumerate(apps):
        assert list(app) == sorted(p for (owner, p) in model.open if owner == process)


def ended(app: Partitions, partition: int) -> bool:
    return partition in app and app[partition].ended


def assign(model: Model, app: Partitions, process: int, partition: int, rng: Random) -> None:
    others = rng.sample(range(PARTITIONS), rng.randrange(PARTITIONS))
    for each in {partition, *others}:
        model.assign(process, each, ended=ended(app, each))
    app.assign([partition, *others])


def count(model: Model, app: Partitions, process: int, partition: int, rng: Random) -> None:
    """A zombie counts on as long as it does not know."""
    key = rng.choice("abc")
    if partition not in app:
        with pytest.raises(ConfigError, match=f"partition {partition} of"):
            app[partition]
    elif ended(app, partition):
        with pytest.raises(FencedError, match=f"partition {partition} of"):
            app[partition].key(key).n.get()
    else:
        mine, db = model.open[process, partition], app[partition]
        state = db.key(key).n
        assert (state.get() or 0) == mine.counts.get(key, 0)
        mine.count(key)
        state.set(mine.counts[key])
        db.advance("in", mine.position)


def checkpoint(model: Model, app: Partitions, process: int, partition: int, rng: Random) -> None:
    """One that is fenced says so, and all others are durable nevertheless."""
    changed = {each for each in app if ended(app, each) or stale(app, each)}
    fenced = [each for each in app if not model.checkpoint(process, each) and each in changed]
    if fenced:
        with pytest.raises(FencedError, match=r"partition \d of .*store"):
            app.checkpoint()
    else:
        app.checkpoint()


def stale(app: Partitions, partition: int) -> bool:
    """Whether a checkpoint would be taken: something has changed since the last one."""
    return bool(asyncio.run(app[partition]._job.driver.change()))


def revoke(model: Model, app: Partitions, process: int, partition: int, rng: Random) -> None:
    if partition in app:
        model.checkpoint(process, partition)
        del model.open[process, partition]
    app.revoke([partition])


def lose(model: Model, app: Partitions, process: int, partition: int, rng: Random) -> None:
    model.open.pop((process, partition), None)
    app.lose([partition])


ACTIONS: list[Callable[[Model, Partitions, int, int, Random], None]] = [
    assign,
    count,
    checkpoint,
    revoke,
    lose,
]
WEIGHTS = [3, 8, 2, 1, 1]
