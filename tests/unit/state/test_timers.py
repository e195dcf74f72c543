"""Timers fire once, at or below the limit, in order, also across flushes and restarts.

Phases of a restore: what overlaps counts once.
"""

from collections.abc import Callable, Iterable

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.property.profiles import looking
from tests.unit.state.conftest import Bench
from tidelog.state.handles.timers import Timers
from tidelog.state.key_groups import decode_key, encode_key


def taken(
    bench: Bench,
    timers: Timers,
    due: Iterable[tuple[int, bytes]],
    handle: Callable[[int], object] = lambda time: None,
) -> list[tuple[object, int]]:
    """Fire these timers, each with its key current."""
    fired = []
    for time, key in due:
        bench.backend.use_encoded_key(key)
        handle(time)
        timers.delete(time)
        fired.append((decode_key(key), time))
    return fired


def fire(bench: Bench, timers: Timers, limit: int) -> list[tuple[object, int]]:
    return taken(bench, timers, timers.expired(limit))


def register(bench: Bench, timers: Timers, key: object, *times: int) -> None:
    bench.backend.use_encoded_key(encode_key(key))
    for time in times:
        timers.register(time)


def test_a_handler_may_delete_and_add_timers(bench: Bench) -> None:
    timers = Timers(bench.backend)
    register(bench, timers, "k", 1, 2, 3)

    def handle(_: int) -> None:
        timers.delete(2)
        timers.register(50)

    assert taken(bench, timers, timers.expired(10), handle) == [("k", 1), ("k", 3)]
    assert fire(bench, timers, 50) == [("k", 50)]


def test_more_timers_than_are_read_ahead_all_fire(bench: Bench) -> None:
    timers = Timers(bench.backend)
    register(bench, timers, "k", *range(2500))
    bench.backend.flush()
    assert [t for _, t in fire(bench, timers, 10**9)] == list(range(2500))


def test_timers_that_are_registered_meanwhile_fire_in_their_turn(bench: Bench) -> None:
    timers, latest = Timers(bench.backend), 2**63 - 1
    register(bench, timers, "k", 1, 4, 9, latest)

    def handle(time: int) -> None:
        if time % 2 and time < 13:
            timers.register(time + 2)

    fired = taken(bench, timers, timers.expired_in_turn(12), handle)
    assert [time for _, time in fired] == [1, 3, 4, 5, 7, 9, 11]
    fired = taken(bench, timers, timers.expired_in_turn(latest))
    assert [time for _, time in fired] == [13, latest], "also at the latest time there is"
    assert list(timers.expired_in_turn(latest)) == []


@pytest.mark.parametrize("listed", [True, False])
def test_only_timers_that_are_listed_have_a_row_by_key(bench: Bench, listed: bool) -> None:
    timers = Timers(bench.backend, listed=listed)
    register(bench, timers, "k", 5)
    bench.backend.flush()
    assert len(bench.stored) == 1 + listed
    assert fire(bench, timers, 5) == [("k", 5)]
    bench.backend.flush()
    assert bench.stored == []


STEPS = st.tuples(
    st.sampled_from(["register", "register", "delete", "fire", "flush", "reopen"]),
    st.sampled_from("abc"),
    st.integers(-3, 20) | st.sampled_from([-300, 300]),
)


@looking(60)
@given(st.lists(STEPS, max_size=60))
def test_timers_fire_like_a_sorted_set(steps: list[tuple[str, str, int]]) -> None:
    bench = Bench()
    timers = Timers(bench.backend)
    model: set[tuple[object, int]] = set()
    for what, key, time in steps:
        match what:
            case "register":
                register(bench, timers, key, time)
                model.add((key, time))
            case "delete":
                bench.backend.use_encoded_key(encode_key(key))
                timers.delete(time)
                model.discard((key, time))
            case "fire":
                due = {timer for timer in model if timer[1] <= time}
                assert sorted(fire(bench, timers, time), key=str) == sorted(due, key=str)
                model -= due
            case "flush":
                bench.backend.flush()
            case "reopen":
                timers = Timers(bench.reopen())
        bench.backend.use_encoded_key(encode_key(key))
        assert list(timers.list()) == sorted(t for k, t in model if k == key)
        earliest = min((t for _, t in model), default=None)
        assert earliest is None or min(timers._due.values()) <= earliest
