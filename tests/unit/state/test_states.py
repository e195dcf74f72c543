"""The states a user function sees, before and after flushes, with and without time to live."""

from typing import Any

import pytest

from tests.unit.state.conftest import Bench
from tidelog.errors import StoreFullError
from tidelog.state.config import FlushConfig
from tidelog.state.handles.keyed import ListHandle, MapHandle, ValueHandle
from tidelog.state.key_groups import encode_key
from tidelog.state.registry import StateRegistry
from tidelog.table.memory import MemoryTable


@pytest.fixture(params=["buffered", "flushed", "reopened"])
def settle(request: pytest.FixtureRequest, bench: Bench) -> Any:
    """Nothing, a flush, or a flush and an empty cache between two steps of a test."""

    def step() -> None:
        if request.param != "buffered":
            bench.backend.flush()
        if request.param == "reopened":
            while bench.backend.buffer.evict(1 << 20):
                pass

    return step


def test_what_a_user_changes_after_reading_or_writing_is_not_the_state(
    bench: Bench, settle: Any
) -> None:
    state, items = bench.value("tags array<string>"), ListHandle(bench.backend, "l", "n int")
    tags, numbers = ["a"], [(1,)]
    state.update((tags,))
    items.appendList(numbers)
    tags.append("mine")
    numbers.append((2,))
    settle()
    read = state.get()
    assert read == (["a"],)
    read[0].append("mine")
    assert (state.get(), list(items.get())) == ((["a"],), [(1,)])


def test_a_flush_logs_what_changed_and_once(bench: Bench) -> None:
    """One row of a hot key, of a large map, of a list that is appended to, of a sum."""
    value, items = bench.value(), ListHandle(bench.backend, "l", "n int")
    entries = MapHandle(bench.backend, "m", "k int", "n int")
    for n in range(500):
        value.update((n,))
        items.appendValue((n,))
        entries.updateValue((n,), (n,))
    bench.backend.flush()
    assert bench.backend.seqno == bench.logged == 502
    bench.backend.flush()
    assert bench.logged == 502
    entries.updateValue((250,), (0,))
    items.appendValue((7,))
    bench.backend.flush()
    assert bench.logged == 504
    assert all(len(value or b"") < 10 for value in bench.log.batches[-1].values)


def test_expired_state_is_invisible_to_every_read(bench: Bench, settle: Any) -> None:
    value = ValueHandle(bench.backend, "v", "n int", 100)
    items = ListHandle(bench.backend, "l", "n int", 100)
    entries = MapHandle(bench.backend, "m", "k int", "n int", 100)
    value.update((1,))
    items.appendValue((1,))
    entries.updateValue((1,), (1,))
    settle()
    bench.now += 60
    items.appendValue((2,))
    entries.updateValue((2,), (2,))
    settle()
    bench.now += 39
    assert value.exists() and len(list(items.get())) == 2 and entries.containsKey((1,))
    bench.now += 1  # the time to live counts from the write
    assert not value.exists() and value.get() is None
    assert list(items.get()) == [(2,)]
    assert dict(entries.iterator()) == {(2,): (2,)} and not entries.containsKey((1,))
    value.update((5,))
    assert value.get() == (5,), "a write lives anew"
    bench.now += 100
    assert not (value.exists() or items.exists() or entries.exists())


def test_expired_rows_leave_the_table_in_the_end(bench: Bench) -> None:
    value = ValueHandle(bench.backend, "v", "n int", 100)
    items = ListHandle(bench.backend, "l", "n int", 100)
    for n in range(50):
        bench.update(value, n, n)
        items.appendValue((n,))
    bench.backend.flush()
    bench.now += 50
    bench.update(value, 7, 70)
    bench.backend.flush()
    for _ in range(10):
        bench.now += 1_000
        bench.sweep()
        bench.backend.flush()
    assert bench.stored == []
    assert sum(v is None for b in bench.log.batches for v in b.values) == 100, "logged, each once"


def test_states_no_longer_used_keep_their_ids_and_rows(bench: Bench) -> None:
    bench.value(name="old").update((1,))
    bench.value(name="b").update((2,))
    backend = bench.reopen()
    assert bench.value(name="new").get() is None and bench.value(name="b").get() == (2,)
    assert [(i.id, i.name) for i in backend.registry.infos()] == [(0, "old"), (1, "b"), (2, "new")]


def test_state_metadata_opens_the_log_and_every_chain(bench: Bench) -> None:
    state = bench.value()
    bench.backend.flush()
    state.update((1,))
    bench.backend.flush()
    assert [block.first for block in bench.log.metadata] == [0]
    bench.backend.begin_chain()
    bench.backend.flush()
    assert [(block.first, block.count) for block in bench.log.metadata] == [(0, 0), (1, 0)]


@pytest.mark.parametrize("limit", [{"rows": 3}, {"bytes": 3_000}, {"max_age": 0.0025}])
def test_a_flush_is_due_by_rows_by_bytes_and_by_age(limit: dict[str, Any]) -> None:
    bench = Bench(**limit)
    state = bench.value("s string")
    state.update(("x" * 1000,))
    bench.backend.flush()  # from here on the backend knows how large rows are
    for n in range(3):
        assert not bench.backend.flush_due()
        bench.update(state, n, "x" * 1000)
        bench.now += 1
    assert bench.backend.flush_due()


@pytest.mark.parametrize(("changes_of_each", "early"), [(1, True), (2, False)])
def test_rows_that_combine_nothing_are_flushed_before_they_are_old(
    changes_of_each: int, early: bool
) -> None:
    bench = Bench(max_age=1.0)
    state = bench.value()
    for _ in range(changes_of_each):
        for n in range(17_000):
            bench.update(state, n, n)
    assert not bench.backend.flush_due()
    bench.now += 300  # milliseconds
    assert bench.backend.flush_due() == early


class Full(MemoryTable):
    def write(self, keys: Any, values: Any) -> None:
        raise StoreFullError("table", found="no space left", action="free disk space")


@pytest.mark.parametrize("scanned", [True, False])
def test_after_a_failed_flush_no_checkpoint_can_be_taken(bench: Bench, scanned: bool) -> None:
    """A list is scanned, so a flush writes to the table first: the log has nothing either. Of a
    value the log has the row, and the table would be frozen without it.
    """
    if scanned:
        ListHandle(bench.backend, "l", "n int").appendValue((1,))
    else:
        bench.value().update((1,))
    whole, bench.backend.table = bench.backend.table, Full()
    if not scanned:
        bench.backend.flush(settle=False)
        assert (bench.backend.seqno, bench.backend.buffer.dirty) == (1, 1)
    with pytest.raises(StoreFullError):
        bench.backend.flush()
    bench.backend.table = whole
    with pytest.raises(StoreFullError):
        bench.backend.flush(settle=scanned)
    assert bench.backend.seqno == bench.logged == (not scanned)


def test_a_row_that_changes_again_and_again_is_written_to_the_table_once(bench: Bench) -> None:
    class Counting(MemoryTable):
        written = 0

        def write(self, keys: Any, values: Any) -> None:
            self.written += len(keys)
            super().write(keys, values)

    bench.backend.table = table = Counting()
    state = bench.value()
    for number in range(100):
        for key in range(10):
            bench.update(state, key, number)
        bench.backend.flush(settle=False)
    assert (table.written, bench.backend.buffer.dirty, bench.backend.seqno) == (0, 10, 1000)
    for _ in bench.backend.write_back(keep=4):
        pass
    assert (table.written, bench.backend.buffer.dirty) == (6, 4)
    bench.backend.flush()
    assert [row[1] for row in table.scan(b"", None)] == [b"\x91\x63"] * 10


def test_a_state_that_is_only_read_keeps_no_more_than_its_cache() -> None:
    bench = Bench(cache_bytes=2000)
    state = bench.value()
    for n in range(100):
        bench.update(state, n, n)
        bench.backend.flush()
    bench.update(state, "changed", -1)
    for n in range(100):
        bench.backend.use_encoded_key(encode_key(n))
        assert state.get() == (n,)
        assert not bench.backend.flush_due()
        bench.sweep()
        assert bench.backend.buffer.cached_bytes <= 2000
    assert bench.backend.buffer.cached_bytes > 0
    bench.backend.use_encoded_key(encode_key("changed"))
    assert state.get() == (-1,)


@pytest.mark.parametrize("rows", [1, 1_000])
def test_rows_that_were_deleted_leave_memory_when_the_table_has_deleted_them(rows: int) -> None:
    bench = Bench(rows=rows)
    state = bench.value()
    for turn in range(20):
        for n in range(100):
            bench.update(state, f"{turn}-{n}", n)
        bench.backend.flush()
        for n in range(100):
            bench.backend.use_encoded_key(encode_key(f"{turn}-{n}"))
            assert state.get() == (n,)
            state.clear()
        bench.backend.flush()
        assert (bench.backend.rows_bytes(), bench.stored) == (0, [])


def test_what_expires_is_removed_also_after_the_clock_was_ahead_for_a_moment(bench: Bench) -> None:
    value, number = ValueHandle(bench.backend, "v", "n int", 1_000), 0
    bench.now += 10**9
    bench.update(value, "ahead", 0)
    bench.backend.flush()
    bench.now -= 10**9
    for _ in range(12):
        bench.now += 1_000
        for _ in range(4_000):
            number += 1
            bench.update(value, number, number)
        bench.backend.flush()
        for _ in range(4):
            bench.sweep()
            bench.backend.flush()
    assert len(bench.stored) <= 12_001, "three seconds of writes at most"


class Watched(MemoryTable):
    """A table that notes where scans begin."""

    def __init__(self) -> None:
        super().__init__()
        self.begun: list[bytes] = []

    def scan(self, lower: bytes, upper: bytes | None) -> Any:
        self.begun.append(lower)
        return super().scan(lower, upper)


def test_entries_that_were_deleted_at_the_front_of_a_map_are_not_passed_again() -> None:
    bench = Bench()
    bench.table = table = Watched()
    bench.backend = bench.open(StateRegistry("operator"), FlushConfig())
    bench.backend.use_encoded_key(encode_key("k"))
    queue = MapHandle(bench.backend, "m", "k int", "n int")
    for number in range(300):
        queue.updateValue((number,), (number,))
        if number >= 10:
            queue.removeKey((number - 10,))
        if number % 50 == 0:
            bench.backend.flush()
        expected = [(each,) for each in range(max(0, number - 9), number + 1)]
        assert list(queue.keys()) == expected
    bench.backend.flush()
    first = bench.stored[0][0]
    list(queue.keys())
    assert list(queue.keys()) == [(number,) for number in range(290, 300)]
    assert table.begun[-1] == first
    queue.updateValue((3,), (3,))
    assert next(queue.keys()) == (3,)
    queue.clear()
    assert not queue.exists()
    queue.updateValue((250,), (1,))
    assert list(queue.keys()) == [(250,)]


def test_the_rows_of_a_subtask_that_has_ended_leave_memory_when_others_need_it() -> None:
    bench = Bench()
    state = bench.value()
    for key in range(1_000):
        bench.update(state, key, key)
    backend, memory = bench.backend, bench.backend.memory
    assert not backend.crowded and memory.used_bytes > 0
    backend.release()
    logged = bench.logged
    memory.limit_bytes = 1
    list(memory.make_room())
    assert memory.used_bytes == 0 == backend.rows_bytes() and not memory.accounts
    assert bench.logged == logged, "nothing is flushed any more"


def test_a_job_that_has_ended_holds_no_rows_and_counts_none() -> None:
    bench = Bench()
    state = bench.value()
    for key in range(1_000):
        bench.update(state, key, key)
    backend = bench.backend
    assert not backend.crowded and backend.memory.used_bytes > 0
    backend.close()
    assert backend.rows_bytes() == 0 == backend.memory.used_bytes and not backend.memory.accounts
