"""Replay: merging a log in pieces gives what applying every change gives."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.changelog import replay
from tidelog.changelog.change import ChangeBatch
from tidelog.changelog.replay import LastWriterWins
from tidelog.errors import CorruptObjectError
from tidelog.ids import SeqNo

row_keys = st.builds(
    lambda group, key: group.to_bytes(2, "big") + b"\0\1" + key,
    st.sampled_from([0, 1, 255, 256, 65535]),
    st.binary(max_size=2),
)
logs = st.lists(
    st.dictionaries(row_keys, st.none() | st.binary(max_size=9), min_size=1, max_size=8),
    max_size=12,
)


def add(merger: LastWriterWins, batch: ChangeBatch) -> None:
    merger.add(batch, batch.raw_bytes)


def batches_of(log: list[dict[bytes, bytes | None]], first: int = 10) -> list[ChangeBatch]:
    batches = []
    for rows in log:
        keys = sorted(rows)
        batches.append(ChangeBatch(SeqNo(first), keys, [rows[key] for key in keys]))
        first += len(keys)
    return batches


ALL_AT_ONCE = st.just(1 << 20)


@given(logs, st.integers(0, 3000), ALL_AT_ONCE | st.integers(1, 9), st.integers(1, 4))
def test_draining_whenever_full_gives_the_state_of_applying_every_change(
    log: list[dict[bytes, bytes | None]], limit: int, at_once: int, sampled: int
) -> None:
    """In one range of keys or range by range."""
    expected: dict[bytes, bytes | None] = {}
    table: dict[bytes, bytes | None] = {}
    merger = LastWriterWins(limit, SeqNo(10))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replay, "_MERGED_AT_ONCE", at_once)
        patch.setattr(replay, "_LEAST_SLICE", 0)
        patch.setattr(replay, "_SAMPLED", sampled)
        for rows, batch in zip(log, batches_of(log), strict=True):
            expected |= rows
            add(merger, batch)
            if merger.full:
                table |= zip(*merger.drain(), strict=True)
        keys, values = merger.drain()
    assert keys == sorted(set(keys))
    assert table | dict(zip(keys, values, strict=True)) == expected
    assert merger.next == 10 + sum(map(len, log))


def test_a_large_log_is_merged_in_several_ranges_of_keys() -> None:
    merger = LastWriterWins(1 << 30, SeqNo(0))
    expected = {}
    for number in range(10):
        keys = [b"\0\0\0\0%06d" % key for key in range(number, 60_000, 10 - number)]
        expected |= dict.fromkeys(keys, b"%d" % number)
        add(merger, ChangeBatch(merger.next, keys, [b"%d" % number] * len(keys)))
    assert len(replay._bounds(merger._runs)) > 5
    keys, values = merger.drain()
    assert keys == sorted(expected) and values == [expected[key] for key in keys]


@given(logs, st.integers(0, 65536), st.integers(0, 65536))
def test_only_rows_of_the_wanted_key_groups_are_kept(
    log: list[dict[bytes, bytes | None]], start: int, stop: int
) -> None:
    wanted = range(start, max(start, stop))
    merger = LastWriterWins(1 << 30, SeqNo(10), wanted)
    expected: dict[bytes, bytes | None] = {}
    for rows, batch in zip(log, batches_of(log), strict=True):
        add(merger, batch)
        expected |= {k: v for k, v in rows.items() if int.from_bytes(k[:2], "big") in wanted}
    assert dict(zip(*merger.drain(), strict=True)) == expected


def test_many_changes_of_one_row_do_not_fill_the_memory() -> None:
    merger = LastWriterWins(10_000, SeqNo(0))
    for number in range(1000):
        add(merger, ChangeBatch(SeqNo(number), [b"\0\0\0\0hot"], [b"v" * 100]))
        assert not merger.full


def test_rows_above_the_limit_fill_it_until_drained() -> None:
    merger = LastWriterWins(1000, SeqNo(0))
    add(merger, ChangeBatch(SeqNo(0), [b"\0\0\0\0a", b"\0\0\0\0b"], [b"v" * 500, b"v" * 500]))
    assert merger.full
    merger.drain()
    assert not merger.full


def test_a_gap_is_refused_and_names_the_first_missing_change() -> None:
    merger = LastWriterWins(1000, SeqNo(5), name="log of operator counts, subtask 3")
    add(merger, ChangeBatch(SeqNo(5), [b"\0\0\0\0a"], [b""]))
    with pytest.raises(CorruptObjectError, match="counts, subtask 3 misses change 6"):
        add(merger, ChangeBatch(SeqNo(8), [b"\0\0\0\0a"], [b""]))


def test_a_change_that_comes_twice_is_refused() -> None:
    merger = LastWriterWins(1000, SeqNo(5))
    merger.skip(SeqNo(5), SeqNo(9))
    with pytest.raises(CorruptObjectError, match="repeats change 8"):
        add(merger, ChangeBatch(SeqNo(8), [b"\0\0\0\0a"], [b""]))
