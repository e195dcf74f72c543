"""A discovery that takes long is made more rarely."""

from typing import Any

import pytest

from tests.support.clock import VirtualClock
from tests.support.pipelines import Outside, acted_on
from tidelog import Job, JobRunner, Source, SplitReader
from tidelog.storage.memory import MemoryStore


class Silent(SplitReader):
    position = 0
    delay_s = 60.0

    def read(self) -> list[Any]:
        return []


class Slow(Source):
    """One split, and a discovery that takes so long."""

    reads_without_waiting = True
    rediscover_s = 1.0

    def __init__(self, clock: VirtualClock, took: float) -> None:
        self.clock = clock
        self.took = took
        self.discoveries = 0

    def discover(self) -> list[str]:
        self.discoveries += 1
        self.clock.spend(self.took)
        return ["0"]

    def open(self, split: str, position: Any) -> Silent:
        return Silent()


@pytest.mark.parametrize(("took", "rest"), [(0.01, 1.0), (0.2, 4.0), (5.0, 10.0)])
def test_discoveries_of_files_take_a_twentieth_of_the_time_and_are_not_given_up(
    took: float, rest: float
) -> None:
    clock = VirtualClock()
    source = Slow(clock, took)
    job = Job("slow")
    job.source(source).sink(Outside())
    acted_on(job, MemoryStore(), JobRunner.stop, at=400.0, clock=clock)
    assert 0.7 * 400 / rest < source.discoveries <= 400 / rest + 2
