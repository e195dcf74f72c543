"""What reads the rows of a key passes what is there, not all that ever was there.

A table keeps a mark of a deleted row for a while, and a scan passes the marks as well.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from tests.unit.state.conftest import Bench
from tidelog.state.config import FlushConfig
from tidelog.state.handles.keyed import ListHandle, MapHandle
from tidelog.state.handles.timers import Timers
from tidelog.state.key_groups import encode_key
from tidelog.state.registry import StateRegistry
from tidelog.table.memory import MemoryTable

ROUNDS = 200


class Marking(MemoryTable):
    """Counts the rows and marks of deleted ones in the ranges of all scans."""

    def __init__(self) -> None:
        super().__init__()
        self.ever: set[bytes] = set()
        self.passed = 0

    def write(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        self.ever.update(keys)
        super().write(keys, values)

    def scan(self, lower: bytes, upper: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        self.passed += sum(lower <= key and (upper is None or key < upper) for key in self.ever)
        return super().scan(lower, upper)


def timers_moved(bench: Bench) -> Callable[[int], object]:
    """The only timer of the key is replaced by a later one."""
    timers = Timers(bench.backend)

    def moved(round: int) -> object:
        for time in list(timers.list()):
            timers.delete(time)
        timers.register(round)
        return list(timers.list()) == [round]

    return moved


def map_cleared(bench: Bench) -> Callable[[int], object]:
    """A map is cleared, and begins anew before where its entries were."""
    state = MapHandle(bench.backend, "m", "k int", "n int")

    def cleared(round: int) -> object:
        state.clear()
        new = [(each,) for each in range(3 * (ROUNDS - round), 3 * (ROUNDS - round) + 3)]
        for each in reversed(new):
            state.updateValue(each, each)
        return list(state.keys()) == new

    return cleared


def list_cleared(bench: Bench) -> Callable[[int], object]:
    state = ListHandle(bench.backend, "l", "n int")

    def cleared(round: int) -> object:
        state.clear()
        state.appendList([(round,), (round + 1,)])
        return list(state.get()) == [(round,), (round + 1,)]

    return cleared


def list_put(bench: Bench) -> Callable[[int], object]:
    state = ListHandle(bench.backend, "l", "n int")

    def put(round: int) -> object:
        state.put([(round,)])
        return state.exists() and list(state.get()) == [(round,)]

    return put


@pytest.mark.parametrize("use", [timers_moved, map_cleared, list_cleared, list_put])
def test_rows_that_are_gone_are_passed_once(use: Callable[[Bench], Callable[[int], Any]]) -> None:
    bench = Bench()
    bench.table = table = Marking()
    bench.backend = bench.open(StateRegistry("operator"), FlushConfig())
    bench.backend.use_encoded_key(encode_key("hot"))
    one_round = use(bench)
    for round in range(ROUNDS):
        assert one_round(round)
        bench.backend.flush()
    assert len(table.ever) >= ROUNDS
    assert table.passed <= 15 * ROUNDS, "each was there for a round, and was passed in it"


@pytest.mark.parametrize("settle", ["kept", "flushed", "reopened"])
def test_what_comes_before_all_that_was_there_is_found(settle: str) -> None:
    bench = Bench()
    timers = Timers(bench.backend)
    for time in (50, 40, 60):
        timers.register(time)
    assert list(timers.list()) == [40, 50, 60]
    for time in (40, 50, 60):
        timers.delete(time)
    assert not list(timers.list())
    timers.register(-10)
    if settle == "flushed":
        bench.backend.flush()
    if settle == "reopened":
        bench.reopen()
        timers = Timers(bench.backend)
    timers.register(20)
    assert list(timers.list()) == [-10, 20]
