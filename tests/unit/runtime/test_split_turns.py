"""No split is left without a turn, whichever way the task takes what a thread has read of it."""

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

from tidelog import Source, SplitReader
from tidelog.effects import Effects
from tidelog.runtime.tasks.split_reading import SplitReading
from tidelog.runtime.tasks.split_turns import SplitTurns


class Gated(SplitReader):
    """A split of which a thread reads one record, once it is let."""

    position = 0

    def __init__(self, gate: threading.Event) -> None:
        self._gate = gate

    def read(self) -> list[Any]:
        assert self._gate.wait(10)
        return ["record"]


class TwoSplits(Source):
    blocking = True
    reads_without_waiting = True

    def __init__(self) -> None:
        self.gates = {split: threading.Event() for split in "ab"}
        self.opened: list[str] = []

    def discover(self) -> list[str]:
        return list(self.gates)

    def open(self, split: str, position: Any) -> SplitReader:
        self.opened.append(split)
        return Gated(self.gates[split])


def wait_in_the_loop(holds: Callable[[], bool]) -> None:
    """Without a turn of the event loop, which would learn that the thread has ended."""
    until = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.001)


def test_a_split_has_its_next_turn_when_its_records_are_gathered_before_the_end_of_the_thread() -> (
    None
):
    async def run(effects: Effects) -> None:
        source = TwoSplits()
        turns = SplitTurns(effects, shares_threads=True)
        first, second = (SplitReading(s, source, None, "source", effects, print) for s in "ab")
        for reading in (first, second):
            turns.add(reading)
        assert turns.next(lambda split: True) is first
        turns.begin(first)
        while turns.take(first) is None and not source.opened:
            await asyncio.sleep(0.001)
        source.gates["a"].set()
        wait_in_the_loop(lambda: first.has_chunks)
        chunk = turns.take(first)
        assert chunk is not None
        # The task looks at the second split, in which the thread waits, and is to be woken.
        assert turns.take(second) is None
        source.gates["b"].set()
        wait_in_the_loop(lambda: second.has_chunks)
        read = {first: chunk}
        turns.gather(read)
        assert list(read) == [first, second]
        await asyncio.sleep(0.05)
        assert turns.next(lambda split: split == "b") is second
        for reading in (first, second):
            reading.close()

    effects = Effects()
    with closing(effects.offload):
        asyncio.run(run(effects))
