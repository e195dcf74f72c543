"""A split is idle at the very moment its task woke up for, however its clock rounds."""

from random import Random

from tests.support.clock import VirtualClock
from tidelog import Replayable
from tidelog.effects import Effects, InlineOffload
from tidelog.runtime.tasks.split_reading import SplitReading

IDLE_AFTER_MS = 150


def test_a_split_is_idle_as_soon_as_it_was_quiet_for_so_long() -> None:
    for n in range(500):
        clock = VirtualClock()
        clock._elapsed = n / 7
        effects = Effects(clock, Random(1), InlineOffload())
        reading = SplitReading("only", Replayable([]), None, "t", effects, lambda: None)
        reading.on_silence(IDLE_AFTER_MS)
        assert not reading.idle
        clock._elapsed = n / 7 + IDLE_AFTER_MS / 1000
        reading.on_silence(IDLE_AFTER_MS)
        assert reading.idle, f"quiet since {n / 7}"
