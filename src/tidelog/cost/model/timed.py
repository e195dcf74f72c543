"""Joins, sessions and windows as workloads: the rows that their records become, by event time.

Invariants: closed forms for records that come evenly in event time, at about the rate of the clock;
a row that is put and deleted between two flushes is in none. Rows are those of
docs/guides/windows.md and docs/guides/joins.md.
"""

from dataclasses import replace
from typing import Final

from tidelog.changelog.change import ROW_PREFIX_BYTES
from tidelog.cost.model.job import Workload, expected_distinct
from tidelog.errors import require
from tidelog.runtime.config import DEFAULT_KEY_GROUPS
from tidelog.state.timed_rows import BATCHED_BYTES, MAX_BATCHED

_OF_BATCH: Final = 20
"""A batch of records has its bucket and a number as its key ..."""
_OF_RECORD: Final = 16
"""... and of each record besides key and value its time, a number and two lengths."""
_OF_OBJECT: Final = 400
"""About what a record takes in memory besides key and value: so many batches have room."""
_OF_TIMER: Final = 8
"""A timer's row has its time."""
_OF_WINDOW: Final = 8
"""A window's row has its start."""
_OF_SESSION: Final = 18
"""A session has two times besides its value ..."""
_OF_SESSIONS: Final = 11
"""... and the row of a key a third one, what is earlier and the list that holds them."""


def joined(
    records: Workload,
    lower_s: float,
    upper_s: float,
    *,
    delay_s: float,
    flush_s: float,
    key_groups: int = DEFAULT_KEY_GROUPS,
) -> Workload:
    """An inner join of two streams with half of the `records` each, which are values.

    Partners of a record of the left are `lower_s` to `upper_s` later; event time is `delay_s`
    behind the records, and a flush comes every `flush_s` seconds. Raises ConfigError for empty
    bounds.
    """
    require("the bounds of a join", f"{lower_s}, {upper_s}", lower_s <= upper_s, "lower <= upper")
    bucket_s = max((upper_s - lower_s) / 2, 0.001)
    rate = records.writes_per_s / 2
    # Beyond these of a bucket and a key group, records are rows of their own.
    limit = min(MAX_BATCHED, BATCHED_BYTES / (records.row_bytes + _OF_OBJECT))
    batched = min(1.0, limit / (rate * bucket_s / key_groups))
    of_record = records.key_bytes + records.value_bytes + _OF_RECORD
    puts_per_s = bytes_per_s = rows = state_bytes = 0.0
    for ahead_s in (upper_s, -lower_s):
        # It goes with the last of its bucket: half of one later, on average.
        stays_s = max(0.001, delay_s + max(0.0, ahead_s + bucket_s / 2))
        seen_s = min(stays_s, flush_s)
        buckets = 1 + seen_s / bucket_s
        batches = buckets * expected_distinct(key_groups, 0.0, rate * seen_s / buckets)
        of_flush = batched * batches + (1 - batched) * rate * seen_s
        puts_per_s += of_flush / flush_s
        bytes_per_s += rate * seen_s * of_record / flush_s
        rows += stays_s * of_flush / seen_s
        state_bytes += stays_s * rate * of_record
    return replace(
        records,
        writes_per_s=max(2 * puts_per_s, 1 / flush_s),
        once_per_s=2 * puts_per_s,
        keys=max(1, round(rows)),
        new_rows_per_s=puts_per_s,
        key_bytes=_OF_BATCH,
        value_bytes=round(bytes_per_s / puts_per_s / 2),  # every other change is a delete
        skew=0.0,
        state_bytes=max(1, round(state_bytes + rows * (ROW_PREFIX_BYTES + _OF_BATCH))),
    )


def in_sessions(records: Workload, gap_s: float, *, delay_s: float, flush_s: float) -> Workload:
    """Sessions that end `gap_s` after their last record, with a value each; as in `joined`.

    A key has the row of its open session, which is put by each flush that finds it changed and is
    deleted in the end; and a timer, which a flush puts and which is deleted when it fires.
    """
    require("the gap of a session", gap_s, gap_s > 0, "more than 0")
    rate = records.writes_per_s

    def keys_within(draws: float) -> float:
        return expected_distinct(records.keys, records.skew, draws)

    put_per_s = keys_within(rate * flush_s) / flush_s
    # A record is the last of its session if none of its key comes within the gap.
    ended_per_s = rate * (keys_within(rate * gap_s + 1) - keys_within(rate * gap_s))
    # One that goes on has another timer each time that one fires, which is late by the delay.
    open_keys = keys_within(rate * gap_s)
    timers_per_s = ended_per_s + (open_keys - ended_per_s * gap_s) / (gap_s + delay_s)
    flushed = min(1.0, (gap_s + delay_s) / flush_s)
    once_per_s = flushed * (ended_per_s + 2 * timers_per_s)
    # Sessions that have ended stay until event time is there.
    waiting, open_rows = ended_per_s * delay_s, keys_within(rate * (gap_s + delay_s))
    session_bytes = records.value_bytes + _OF_SESSION
    put_bytes = _OF_SESSIONS + session_bytes * (1 + waiting / records.keys)
    timer_bytes = 2 * flushed * timers_per_s * _OF_TIMER
    of_row = 2 * (ROW_PREFIX_BYTES + records.key_bytes) + _OF_SESSIONS + _OF_TIMER
    return replace(
        records,
        writes_per_s=rate + once_per_s,
        once_per_s=once_per_s,
        value_bytes=round((put_per_s * put_bytes + timer_bytes) / (put_per_s + once_per_s)),
        state_bytes=max(1, round(open_rows * of_row + (open_keys + waiting) * session_bytes)),
    )


def in_windows(
    records: Workload, size_s: float, slide_s: float, *, delay_s: float, flush_s: float
) -> Workload:
    """Windows of `size_s` that begin every `slide_s`, tumbling where both are equal; as in
    `joined`.

    A key has a row for each slice, what windows share, which is put by each flush that finds it
    changed and deleted after the last window that has it; and a timer at the end of the next of its
    windows, which is deleted when it fires and put again for the one after.
    """
    require("the windows", f"{size_s}, {slide_s}", 0 < slide_s <= size_s, "0 < slide <= size")
    rate, slice_s = records.writes_per_s, _slice_s(size_s, slide_s)

    def keys_within(seconds: float) -> float:
        return expected_distinct(records.keys, records.skew, rate * seconds)

    seen_s = min(flush_s, slice_s)
    put_per_s = keys_within(seen_s) / seen_s
    slices_per_s = keys_within(slice_s) / slice_s
    timers_per_s = keys_within(size_s) / slide_s
    # What comes and goes between two flushes is in none.
    flushed = min(1.0, (size_s + delay_s) / flush_s)
    once_per_s = flushed * (slices_per_s + 2 * timers_per_s)
    value_bytes = records.value_bytes + _OF_WINDOW
    put_bytes = put_per_s * value_bytes + 2 * flushed * timers_per_s * _OF_WINDOW
    put_bytes += flushed * slices_per_s * _OF_WINDOW  # a delete names the window, too
    # The newest slice has half of its keys, on average; the older ones stay for the rest of the
    # last window that has them.
    rows = keys_within(slice_s / 2) + slices_per_s * (size_s - slice_s + delay_s)
    timers = keys_within(size_s) * (1 + delay_s / size_s)
    of_row = ROW_PREFIX_BYTES + records.key_bytes
    return replace(
        records,
        writes_per_s=rate + once_per_s,
        once_per_s=once_per_s,
        value_bytes=round(put_bytes / (put_per_s + once_per_s)),
        state_bytes=max(1, round(rows * (of_row + value_bytes) + timers * (of_row + _OF_WINDOW))),
        renewed_s=slice_s,
        rows=max(1.0, rows + timers),
        new_rows_per_s=flushed * (slices_per_s + timers_per_s),
    )


def _slice_s(size_s: float, slide_s: float) -> float:
    """Length of what windows share: two slices in a slide that does not divide the size."""
    rest = round(size_s % slide_s, 6)
    return slide_s if rest in (0.0, round(slide_s, 6)) else slide_s / 2
