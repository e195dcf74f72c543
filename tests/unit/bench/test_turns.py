"""Whole checkpoints are counted: from the completion of one to that of another, and no more."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from tidelog.storage.memory import MemoryStore
from tidelog_bench.embedded.checkpoint_window import CheckpointWindow
from tidelog_bench.embedded.meter import CLOCK
from tidelog_bench.store.latency import NONE
from tidelog_bench.store.modelled import ModelledStore

WRITTEN = {"segments/a": 1000, "tables/b": 500, "materializations/c": 300, "checkpoints/d": 200}


class Job:
    """Writes the same objects for every checkpoint, deletes one, and hears when to stop."""

    def __init__(self, checkpoints: int) -> None:
        self.store = SimpleNamespace(model=ModelledStore(MemoryStore(), CLOCK, NONE))
        self.store.writes = self.store.model.writes
        self.metrics = SimpleNamespace(completed=0, durations_s=[])
        incarnation = SimpleNamespace(driver=SimpleNamespace(metrics=self.metrics))
        self.runner = SimpleNamespace(incarnation=incarnation)
        self.stages = SimpleNamespace(start=object(), finish=self._finish)
        self.finished_at: int | None = None
        self._checkpoints = checkpoints

    async def run(self, turns: CheckpointWindow) -> None:
        watching: Any = asyncio.ensure_future(turns.watch(self))  # type: ignore[arg-type]
        for number in range(1, self._checkpoints + 1):
            for name, size in WRITTEN.items():
                await self.store.model.put(name, bytes(size))
            await self.store.model.delete("segments/a")
            self.metrics.durations_s.append(number / 1000)
            self.metrics.completed = number
            await CLOCK.sleep(0.03)
        await watching

    def _finish(self) -> None:
        self.finished_at = self.metrics.completed


def counted(turns: CheckpointWindow) -> tuple[Job, dict[str, float]]:
    job = Job(checkpoints=8)
    asyncio.run(job.run(turns))
    return job, turns.figures()


def test_figures_are_those_of_one_checkpoint() -> None:
    turns = CheckpointWindow(settling=2, count=4, seconds=60.0)
    job, figures = counted(turns)
    assert turns.counted == 4
    assert job.finished_at == 6
    assert figures["objects_per_checkpoint"] == 4
    assert figures["table_objects_per_checkpoint"] == 2
    assert figures["log_objects_per_checkpoint"] == 1
    assert figures["requests_per_checkpoint"] == 5
    assert figures["kb_per_checkpoint"] == 2.0
    assert figures["p50_ms"] == pytest.approx(4.0)  # of 3, 4, 5 and 6 ms


def test_dollars_are_of_a_checkpoint_a_second_however_fast_they_came() -> None:
    _, figures = counted(CheckpointWindow(settling=1, count=3, seconds=60.0))
    assert figures["dollars_per_day"] == pytest.approx(4 * 86_400 * 0.005 / 1000, rel=1e-4)


def test_time_ends_the_count_but_not_before_one_checkpoint() -> None:
    turns = CheckpointWindow(settling=3, count=100, seconds=0.0)
    job, _ = counted(turns)
    assert turns.counted == 1
    assert job.finished_at == 4
