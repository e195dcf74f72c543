"""Replay: the changes of one subtask's log merged into the newest value of every row.

Invariants: batches come in the order they were written and without a gap; of several changes of
a row the last one wins; a delete stays a delete, because an older value may lie in the table.
"""

from bisect import bisect_left
from collections.abc import Collection, Sequence
from typing import Final

from tidelog.changelog.change import CHANGE_OVERHEAD_BYTES, ChangeBatch
from tidelog.errors import OLDER_CHECKPOINT, CorruptObjectError
from tidelog.ids import SeqNo

ROW_OVERHEAD_BYTES: Final = 150
"""Memory a row takes besides its bytes: two objects' headers and its slot in the dict."""
_MERGED_AT_ONCE: Final = 12 << 10
"""Changes merged at a time: few enough for their rows to stay in the processor's cache."""
_SAMPLED: Final = 64
"""One row key of so many tells how all of them are distributed."""
_LEAST_SLICE: Final = 16
"""Changes taken from a batch at a time, on average: with fewer the slicing costs more."""

_Rows = tuple[list[bytes], list[bytes | None]]
_Run = tuple[Sequence[bytes], Sequence[bytes | None]]
"""Row keys, strictly ascending, and their values."""


class LastWriterWins:
    """Merges the log of one subtask from change `first` on, or the part in `key_groups` of it.

    When `full` is true the merged rows take more than half of `limit_bytes` of memory: drain
    them into the table, then go on adding. `name` tells the log in messages.
    """

    def __init__(
        self, limit_bytes: int, first: SeqNo, key_groups: range | None = None, name: str = "log"
    ) -> None:
        self.full = False
        self._limit_bytes = limit_bytes
        self.next = first
        """The sequence number the next batch starts with."""
        self._key_groups = key_groups
        self._name = name
        self._runs: list[_Run] = []
        """What was added, the oldest first; merged when it is drained or takes too much memory."""
        self._at_most = 0

    @property
    def empty(self) -> bool:
        """There is nothing to drain."""
        return not self._runs

    def add(self, batch: ChangeBatch, payload_bytes: int) -> int:
        """Add the next batch, whose block has a payload of so many bytes; returns how many of its
        changes count here.

        Raises CorruptObjectError when it is not the next one.
        """
        self.skip(batch.first, batch.end)
        keys, values = batch.keys, batch.values
        if self._key_groups is not None:
            start = _first_of(self._key_groups.start, keys)
            stop = _first_of(self._key_groups.stop, keys)
            keys, values = keys[start:stop], values[start:stop]
        if not keys:
            return 0
        self._runs.append((keys, values))
        share = payload_bytes * len(keys) // len(batch)
        self._at_most += share + (ROW_OVERHEAD_BYTES - CHANGE_OVERHEAD_BYTES) * len(keys)
        if self._at_most > self._limit_bytes:
            # A row counted once per change; a merge that removes most of them leaves room for half
            # the limit until the next one, so merges stay rare.
            rows = _merged(self._runs)
            self._runs = [rows]
            self._at_most = _memory(*rows)
            self.full = self._at_most > self._limit_bytes // 2
        return len(keys)

    def skip(self, first: SeqNo, end: SeqNo) -> None:
        """Pass over changes [first, end), known to lie in other key groups; raises
        CorruptObjectError when they are not the next ones.
        """
        if first != self.next:
            has_gap = first > self.next
            raise CorruptObjectError(
                f"{self._name} {'misses' if has_gap else 'repeats'} change "
                f"{self.next if has_gap else first}",
                expected=f"changes from {self.next}",
                found=f"changes from {first}",
                action=OLDER_CHECKPOINT,
            )
        self.next = end

    def check_end(self, end: SeqNo) -> None:
        """Raise CorruptObjectError if the log does not end where it should: before change `end`."""
        if self.next != end:
            raise CorruptObjectError(
                self._name,
                expected=f"changes up to {end}",
                found=f"changes up to {self.next}",
                action=OLDER_CHECKPOINT,
            )

    def drain(self) -> _Rows:
        """Row keys in ascending order and their values (None: deleted); nothing is kept."""
        runs, self._runs, self._at_most, self.full = self._runs, [], 0, False
        return _merged(runs)


def _first_of(key_group: int, keys: Sequence[bytes]) -> int:
    """Where the keys of this key group, or a later one, begin."""
    return len(keys) if key_group > 0xFFFF else bisect_left(keys, key_group.to_bytes(2, "big"))


def _merged(runs: Sequence[_Run]) -> _Rows:
    """The newest value of each row, ascending.

    Range of keys after range of keys: one dict of all rows would miss the processor's cache with
    every change, and again with every row when it is sorted.
    """
    if len(runs) == 1:
        return list(runs[0][0]), list(runs[0][1])
    keys: list[bytes] = []
    values: list[bytes | None] = []
    positions = [0] * len(runs)
    for bound in (*_bounds(runs), None):
        rows: dict[bytes, bytes | None] = {}
        for number, (run_keys, run_values) in enumerate(runs):
            start = positions[number]
            stop = len(run_keys) if bound is None else bisect_left(run_keys, bound, start)
            if start < stop:
                rows.update(zip(run_keys[start:stop], run_values[start:stop], strict=True))
                positions[number] = stop
        ascending = sorted(rows)
        keys += ascending
        values += map(rows.__getitem__, ascending)
    return keys, values


def _bounds(runs: Sequence[_Run]) -> list[bytes]:
    """Row keys between which about equally many changes lie."""
    changes = sum(len(keys) for keys, _ in runs)
    parts = min(changes // _MERGED_AT_ONCE, changes // max(1, _LEAST_SLICE * len(runs)))
    if parts < 2:
        return []
    sample: list[bytes] = []
    for keys, _ in runs:
        sample += keys[::_SAMPLED]
    sample.sort()
    return [sample[number * len(sample) // parts] for number in range(1, parts)]


def _memory(keys: Collection[bytes], values: Collection[bytes | None]) -> int:
    return (
        sum(map(len, keys)) + sum(map(len, filter(None, values))) + ROW_OVERHEAD_BYTES * len(keys)
    )
