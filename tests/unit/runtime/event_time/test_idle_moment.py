"""A split is idle at the very moment its task woke up for, however its clock rounds."""

from collections.abc import Iterable
from random import Random
from typing import Any

from tests.support.clock import VirtualClock
from tidelog.effects import Effects, InlineOffload
from tidelog.runtime.source import Source, SplitReader
from tidelog.runtime.tasks.split_reading import SplitReading

IDLE_AFTER_MS = 150


class Nothing(Source):
    """A source with one split, which no test opens."""

    def discover(self) -> Iterable[str]:
        return ["only"]

    def open(self, split: str, position: Any) -> SplitReader:
        raise AssertionError("nobody reads it")


def test_a_split_is_idle_as_soon_as_it_was_quiet_for_so_long() -> None:
    for n in range(500):
        clock = VirtualClock()
        clock._elapsed = n / 7
        reading = SplitReading(
            "only", Nothing(), None, "t", Effects(clock, Random(1), InlineOffload())
        )
        reading.on_silence(IDLE_AFTER_MS)
        assert not reading.idle
        clock._elapsed = n / 7 + IDLE_AFTER_MS / 1000
        reading.on_silence(IDLE_AFTER_MS)
        assert reading.idle, f"quiet since {n / 7}"
