"""Replay: the changes of one subtask's log merged into the newest value of every row.

Invariants: batches come in the order they were written and without a gap; of several changes of
a row the last one wins; a delete stays a delete, because an older value may lie in the table.
"""

from bisect import bisect_left
from collections.abc import Collection
from typing import Final

from tidelog.changelog.change import ChangeBatch
from tidelog.errors import CorruptObjectError
from tidelog.ids import SeqNo

ROW_OVERHEAD_BYTES: Final = 150
"""Memory a row takes besides its bytes: two objects' headers and its slot in the dict."""


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
        self._next = first
        self._key_groups = key_groups
        self._name = name
        self._rows: dict[bytes, bytes | None] = {}
        self._at_most = 0

    @property
    def next(self) -> SeqNo:
        """The sequence number the next batch starts with."""
        return self._next

    @property
    def empty(self) -> bool:
        """There is nothing to drain."""
        return not self._rows

    def add(self, batch: ChangeBatch) -> int:
        """Merge the next batch; returns how many of its changes count here.

        Raises CorruptObjectError when it is not the next one.
        """
        self.skip(batch.first, batch.end)
        keys, values = batch.keys, batch.values
        if self._key_groups is not None:
            start = bisect_left(keys, self._key_groups.start, key=_key_group)
            stop = bisect_left(keys, self._key_groups.stop, key=_key_group)
            keys, values = keys[start:stop], values[start:stop]
        self._rows.update(zip(keys, values, strict=True))
        self._at_most += _memory(keys, values)
        if self._at_most > self._limit_bytes:
            # A row counted once per change; a recount that finds little leaves room for half
            # the limit until the next one, so recounts stay rare.
            self._at_most = _memory(self._rows.keys(), self._rows.values())
            self.full = self._at_most > self._limit_bytes // 2
        return len(keys)

    def skip(self, first: SeqNo, end: SeqNo) -> None:
        """Pass over changes [first, end), known to lie in other key groups; raises
        CorruptObjectError when they are not the next ones.
        """
        if first != self._next:
            missing = first > self._next
            raise CorruptObjectError(
                f"{self._name} {'misses' if missing else 'repeats'} change "
                f"{self._next if missing else first}",
                expected=f"changes from {self._next}",
                found=f"changes from {first}",
                action="restore an older slot (`tidelog checkpoints list URL` shows them)",
            )
        self._next = end

    def check_end(self, end: SeqNo) -> None:
        """Raise CorruptObjectError if the log does not end where it should: before change `end`."""
        if self._next != end:
            raise CorruptObjectError(
                self._name,
                expected=f"changes up to {end}",
                found=f"changes up to {self._next}",
                action="restore an older slot (`tidelog checkpoints list URL` shows them)",
            )

    def drain(self) -> tuple[list[bytes], list[bytes | None]]:
        """Row keys in ascending order and their values (None: deleted); nothing is kept."""
        rows, self._rows, self._at_most, self.full = self._rows, {}, 0, False
        keys = sorted(rows)
        return keys, list(map(rows.__getitem__, keys))


def _key_group(row_key: bytes) -> int:
    return int.from_bytes(row_key[:2], "big")


def _memory(keys: Collection[bytes], values: Collection[bytes | None]) -> int:
    return (
        sum(map(len, keys)) + sum(map(len, filter(None, values))) + ROW_OVERHEAD_BYTES * len(keys)
    )
