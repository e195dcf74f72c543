"""The write buffer reads like the table it will become, and flushes each changed row once.

Memory of rows: sizes come near the truth, and whoever passes the limit makes room.
"""

from collections.abc import Iterator
from itertools import chain
from typing import Any
from unittest import mock

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.property.profiles import looking
from tidelog.changelog import row_cache
from tidelog.changelog.row_memory import RowAccount, RowMemory, row_key
from tidelog.changelog.state_rows import StateRows
from tidelog.changelog.write_buffer import WriteBuffer
from tidelog.table.memory import MemoryTable


def buffer(*, cached: bool = True, scanned: bool = True) -> tuple[WriteBuffer, StateRows]:
    table = MemoryTable()
    writes = WriteBuffer(table)
    rows = writes.state(str.encode, bytes.decode, cached=cached, scanned=scanned)
    return writes, rows


def flush(writes: WriteBuffer, limit: int = 100) -> tuple[list[bytes], list[bytes | None]]:
    keys, values = writes.drain(limit)
    writes._table.write(keys, values)
    return keys, values


def test_rows_of_all_states_are_flushed_in_one_sorted_batch() -> None:
    writes, one = buffer()
    other = writes.state(str.encode, bytes.decode, cached=True, scanned=False)
    other.put(b"b", "2")
    one.put(b"c", "3")
    one.put(b"a", "1")
    other.delete(b"d")
    assert flush(writes) == ([b"a", b"b", b"c", b"d"], [b"1", b"2", b"3", None])


def test_a_scan_shows_the_rows_as_they_were_when_it_started() -> None:
    writes, rows = buffer()
    for key in (b"a", b"c"):
        rows.put(key, "stored")
    flush(writes)
    rows.put(b"b", "fresh")
    scan = rows.scan(b"a", b"z")
    rows.put(b"d", "late")
    rows.delete(b"c")
    assert list(scan) == [(b"a", "stored"), (b"b", "fresh"), (b"c", "stored")]


def test_a_row_that_was_deleted_and_came_again_does_not_leave_in_the_turn_of_the_first() -> None:
    writes, rows = buffer()
    rows.put(b"a", "first")
    flush(writes)
    rows.delete(b"a")
    flush(writes)
    rows.put(b"a", "again")
    assert writes.evict(1 << 20) == 0
    assert rows.get(b"a") == "again" and flush(writes) == ([b"a"], [b"again"])


def test_rows_that_come_and_go_leave_nothing_in_memory_though_memory_is_never_short() -> None:
    writes, rows = buffer()
    rows.put_many({b"x%d" % n: "stays" for n in range(10)})
    for turn in range(100):
        keys = [b"%d-%d" % (turn, n) for n in range(10)]
        rows.put_many(dict.fromkeys(keys, "new"))
        flush(writes)
        rows.delete_many(keys)
        flush(writes)
    assert len(rows._rows) == 10 and len(rows._rows._queue) <= 60


def test_rows_that_are_used_stay_and_the_others_leave_in_the_order_in_which_they_came() -> None:
    writes, rows = buffer()
    rows.put_many({bytes([n]): str(n) for n in range(97, 107)})
    flush(writes)
    assert rows.get_many([b"a", b"c"]) == ["97", "99"]
    while len(rows._rows) > 5:
        writes.evict(1)
    assert [key for key in map(bytes, zip(range(97, 107))) if rows._rows.get(key)] == [
        b"a",
        b"c",
        b"h",
        b"i",
        b"j",
    ]


key = st.sampled_from([group + bytes([n]) for group in (b"aaaa", b"bbbb") for n in range(4)])
any_step = st.one_of(
    st.tuples(st.just("put"), key, st.text("xyz", max_size=3)),
    st.tuples(st.just("delete"), key),
    st.tuples(st.just("delete_many"), st.lists(key)),
    st.tuples(st.just("evict"), st.sampled_from([1, 300, 10_000])),
    st.tuples(st.just("get_many"), st.lists(key)),
)
step = any_step | st.one_of(
    st.tuples(st.just("put_many"), st.dictionaries(key, st.text("xyz", max_size=3))),
    st.tuples(st.just("flush"), st.integers(1, 9)),
    st.tuples(st.just("scan"), key, key),
    st.tuples(st.just("get"), key),
)
lazy_step = any_step | st.one_of(
    st.tuples(st.just("to the log"), st.integers(1, 4)),
    st.tuples(st.just("to the table"), st.integers(1, 4)),
    st.tuples(st.just("to both"), st.booleans()),
)


def change(rows: StateRows, model: dict[bytes, str], what: str, keys: Any, value: str = "") -> None:
    """Do the same to the rows and to the dict that they are to equal."""
    match what:
        case "put":
            rows.put(keys, value)
            model[keys] = value
        case "delete":
            rows.delete(keys)
            model.pop(keys, None)
        case "delete_many":
            rows.delete_many(keys)
            for each in keys:
                model.pop(each, None)
        case "get_many":
            assert rows.get_many(keys) == [model.get(k) for k in keys]


@pytest.fixture(autouse=True)
def small_dicts() -> Iterator[None]:
    """Rows lie in several dicts."""
    with mock.patch.object(row_cache, "FIRST_ROWS", 3):
        yield


@looking(100)
@given(st.lists(lazy_step, max_size=50), st.booleans())
def test_rows_that_the_table_lacks_are_read_and_come_to_it_later(
    steps: list[tuple[Any, ...]], evicts: bool
) -> None:
    writes, rows = buffer(scanned=False)
    model: dict[bytes, str] = {}
    logged: dict[bytes, bytes | None] = {}
    for what, *arguments in steps:
        match what:
            case "put" | "delete" | "delete_many" | "get_many":
                change(rows, model, what, *arguments)
            case "to the log":
                keys, values = writes.drain(arguments[0], dirty=True)
                logged.update(zip(keys, values, strict=True))
            case "to the table":
                keys, values = writes.take_dirty(arguments[0])
                assert keys == sorted(set(keys)) and len(keys) <= arguments[0]
                writes._table.write(keys, values)
            case "to both":
                keys, values = writes.drain(cache=arguments[0])
                writes._table.write(keys, values)
                logged.update(zip(keys, values, strict=True))
            case "evict":
                writes.evict(*arguments)
    here = sorted(set(chain.from_iterable(rows.here())), key=row_key)
    while evicts and writes.evict(1 << 20):
        pass
    assert list(rows.scan_with(iter(here), b"a", b"z")) == sorted(model.items())
    keys, values = writes.drain(dirty=True)
    logged.update(zip(keys, values, strict=True))
    writes._table.write(*writes.take_dirty())
    assert writes.dirty == 0 and not rows._dirty._listed
    replayed = {k: v.decode() for k, v in logged.items() if v is not None}
    assert replayed == model == {k: v.decode() for k, v in writes._table.scan(b"", None)}


@looking(100)
@given(st.lists(step, max_size=50), st.booleans())
def test_the_buffer_reads_like_a_dict(steps: list[tuple[Any, ...]], cached: bool) -> None:
    writes, rows = buffer(cached=cached)
    model: dict[bytes, str] = {}
    logged: dict[bytes, bytes | None] = {}
    for what, *arguments in steps:
        match what:
            case "put" | "delete" | "delete_many" | "get_many":
                change(rows, model, what, *arguments)
            case "put_many":
                rows.put_many(*arguments)
                model.update(arguments[0])
            case "flush":
                keys, values = flush(writes, *arguments)
                assert keys == sorted(set(keys)) and len(keys) <= arguments[0]
                logged.update(zip(keys, values, strict=True))
                assert cached or rows.cached_bytes == 0
            case "evict":
                count = rows.cached_bytes // max(1, int(rows.size.bytes))
                assert writes.evict(*arguments) <= max(1, count)
            case "scan":
                low, high = sorted(arguments)
                expected = sorted((k, v) for k, v in model.items() if low <= k < high)
                assert list(rows.scan(low, high)) == expected
            case "get":
                assert rows.get(arguments[0]) == model.get(arguments[0])
    keys, values = flush(writes)
    logged.update(zip(keys, values, strict=True))
    replayed = {k: v.decode() for k, v in logged.items() if v is not None}
    assert replayed == model == {k: v.decode() for k, v in writes._table.scan(b"", None)}


def test_the_largest_give_back_until_the_rest_fits() -> None:
    memory = RowMemory(100)
    shed: list[int] = []
    accounts: list[RowAccount] = []

    def give_back(number: int) -> Iterator[None]:
        shed.append(number)
        yield
        accounts[number].holds(0)

    for number in range(4):
        accounts.append(memory.account(lambda number=number: give_back(number)))  # type: ignore[misc]
    for number, size in enumerate((10, 50, 40, 0)):
        accounts[number].holds(size)
    assert list(memory.make_room()) == [] and shed == [] and memory.used_bytes == 100
    accounts[3].holds(5)
    first, second = memory.make_room(), memory.make_room()
    assert next(first, "done") is None and next(second, "done") is None, "the second one waits"
    assert next(first, "done") == "done" and next(second, "done") == "done"
    assert shed == [1] and memory.used_bytes == 55
    accounts[0].holds(500)
    list(memory.make_room())
    assert shed == [1, 0] and memory.used_bytes == 45
    accounts[2].close()
    assert memory.used_bytes == 5
