"""The write buffer reads like the table it will become, and flushes each changed row once."""

from typing import Any

import hypothesis.strategies as st
from hypothesis import given

from tests.property.profiles import looking
from tidelog.changelog.state_rows import StateRows
from tidelog.changelog.write_buffer import WriteBuffer
from tidelog.table.memory import MemoryTable


def buffer(*, cached: bool = True, scanned: bool = True) -> tuple[WriteBuffer, StateRows]:
    table = MemoryTable()
    writes = WriteBuffer(table)
    rows = writes.state(str.encode, bytes.decode, cached=cached, scanned=scanned)
    return writes, rows


def flush(writes: WriteBuffer) -> tuple[list[bytes], list[bytes | None]]:
    keys, values = writes.drain()
    writes._table.write(keys, values)
    return keys, values


def test_reads_see_changes_then_the_cache_then_the_table() -> None:
    writes, rows = buffer(cached=False)
    rows.put(b"k", "old")
    flush(writes)
    assert rows.get(b"k") == "old"
    rows.put(b"k", "new")
    assert rows.get(b"k") == "new"
    rows.delete(b"k")
    assert rows.get(b"k") is None
    assert rows.get_many([b"k", b"other"]) == [None, None]


def test_a_hot_row_is_flushed_once_with_its_newest_value() -> None:
    writes, rows = buffer()
    for n in range(100):
        rows.put(b"k", str(n))
    assert len(writes) == 1
    assert flush(writes) == ([b"k"], [b"99"])
    assert flush(writes) == ([], [])


def test_rows_of_all_states_are_flushed_in_one_sorted_batch() -> None:
    writes, one = buffer()
    other = writes.state(str.encode, bytes.decode, cached=True, scanned=False)
    other.put(b"b", "2")
    one.put(b"c", "3")
    one.put(b"a", "1")
    other.delete(b"d")
    assert flush(writes) == ([b"a", b"b", b"c", b"d"], [b"1", b"2", b"3", None])


def test_only_rows_put_since_the_last_flush_are_changed() -> None:
    writes, rows = buffer()
    rows.put(b"k", "v")
    assert rows.changed(b"k") == "v"
    flush(writes)
    assert rows.changed(b"k") is None and rows.get(b"k") == "v"


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


key = st.sampled_from([bytes([n]) for n in range(97, 105)])
step = st.one_of(
    st.tuples(st.just("put"), key, st.text("xyz", max_size=3)),
    st.tuples(st.just("delete"), key),
    st.tuples(st.just("delete_many"), st.lists(key)),
    st.tuples(st.just("put_many"), st.dictionaries(key, st.text("xyz", max_size=3))),
    st.tuples(st.just("flush")),
    st.tuples(st.just("drop")),
    st.tuples(st.just("scan"), key, key),
    st.tuples(st.just("get_many"), st.lists(key)),
    st.tuples(st.just("get"), key),
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


lazy_step = st.one_of(
    st.tuples(st.just("put"), key, st.text("xyz", max_size=3)),
    st.tuples(st.just("delete"), key),
    st.tuples(st.just("delete_many"), st.lists(key)),
    st.tuples(st.just("to the log"), st.integers(1, 4)),
    st.tuples(st.just("to the table"), st.integers(1, 4)),
    st.tuples(st.just("to both"), st.booleans()),
    st.tuples(st.just("drop")),
    st.tuples(st.just("get_many"), st.lists(key)),
)


@looking(100, deep=30)
@given(st.lists(lazy_step, max_size=50), st.booleans())
def test_rows_that_the_table_lacks_are_read_and_come_to_it_later(
    steps: list[tuple[Any, ...]], drops: bool
) -> None:
    writes, rows = buffer(scanned=False)
    model: dict[bytes, str] = {}
    logged: dict[bytes, bytes | None] = {}
    for what, *arguments in steps:
        match what:
            case "put" | "delete" | "delete_many":
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
            case "drop":
                writes.drop_cached()
            case "get_many":
                assert rows.get_many(arguments[0]) == [model.get(k) for k in arguments[0]]
    here = rows.here()
    if drops:
        writes.drop_cached()
    assert list(rows.scan_with(here, b"a", b"z")) == sorted(model.items())
    keys, values = writes.drain(dirty=True)
    logged.update(zip(keys, values, strict=True))
    writes._table.write(*writes.take_dirty())
    assert writes.dirty == 0 and not rows._dirty._listed
    replayed = {k: v.decode() for k, v in logged.items() if v is not None}
    assert replayed == model == {k: v.decode() for k, v in writes._table.scan(b"", None)}


@looking(100, deep=30)
@given(st.lists(step, max_size=50), st.booleans())
def test_the_buffer_reads_like_a_dict(steps: list[tuple[Any, ...]], cached: bool) -> None:
    writes, rows = buffer(cached=cached)
    model: dict[bytes, str] = {}
    logged: dict[bytes, bytes | None] = {}
    for what, *arguments in steps:
        match what:
            case "put" | "delete" | "delete_many":
                change(rows, model, what, *arguments)
            case "put_many":
                rows.put_many(*arguments)
                model.update(arguments[0])
            case "flush":
                keys, values = flush(writes)
                assert keys == sorted(set(keys))
                logged.update(zip(keys, values, strict=True))
                assert cached or rows.cached_bytes == 0
            case "drop":
                writes.drop_cached()
                assert rows.cached_bytes == 0
            case "scan":
                low, high = sorted(arguments)
                expected = sorted((k, v) for k, v in model.items() if low <= k < high)
                assert list(rows.scan(low, high)) == expected
            case "get_many":
                assert rows.get_many(arguments[0]) == [model.get(k) for k in arguments[0]]
            case "get":
                assert rows.get(arguments[0]) == model.get(arguments[0])
    keys, values = flush(writes)
    logged.update(zip(keys, values, strict=True))
    replayed = {k: v.decode() for k, v in logged.items() if v is not None}
    assert replayed == model == {k: v.decode() for k, v in writes._table.scan(b"", None)}
