"""Changes: the rows that are written to the table and to the log alike.

Invariant: every state kind is built from two operations on rows, put and delete, so replay is
"last writer wins per row key" and needs no knowledge of state kinds. A list append puts a new
row and never rewrites the list; that is how deltas stay deltas.

Row key (docs/internals/format.md): key group u16 big-endian, state id u16 big-endian, then the
state's own key bytes. Big-endian so that byte order is key-group order.
"""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, cast

from tidelog.ids import SeqNo

OP_PUT: Final = 1
OP_DELETE: Final = 2

CHANGE_OVERHEAD_BYTES: Final = 9
"""Op and two lengths of a change in a block."""

ROW_PREFIX_BYTES: Final = 4
"""Key group and state id in front of every row key."""


@dataclass(frozen=True)
class ChangeBatch:
    """The changes of one flush, as columns.

    `keys` are full row keys, strictly ascending; `values[i]` is None for a delete. The batch holds
    the changes numbered [first, first + len(keys)).
    """

    first: SeqNo
    keys: Sequence[bytes]
    values: Sequence[bytes | None]

    @property
    def end(self) -> SeqNo:
        """The sequence number after the last change."""
        return SeqNo(self.first + len(self.keys))

    @cached_property
    def key_lengths(self) -> "array[int]":
        """Lengths of the keys; counted once, for the flush trigger and for the block."""
        return array("I", map(len, self.keys))

    @cached_property
    def value_lengths(self) -> "array[int]":
        """Lengths of the values, 0 for a delete."""
        try:
            return array("I", map(len, cast("Sequence[bytes]", self.values)))
        except TypeError:
            return array("I", [len(value or b"") for value in self.values])

    @property
    def raw_bytes(self) -> int:
        """Size of the changes in an uncompressed block, its header aside."""
        bare = sum(self.key_lengths) + sum(self.value_lengths)
        return bare + CHANGE_OVERHEAD_BYTES * len(self.keys)

    def __len__(self) -> int:
        return len(self.keys)

    def split(self, most_bytes: int) -> "Iterator[ChangeBatch]":
        """The same changes in batches of about that size at most; a single row may be larger."""
        parts = min(len(self.keys), -(-self.raw_bytes // most_bytes))
        if parts <= 1:
            yield self
            return
        rows_per_part = -(-len(self.keys) // parts)
        for start in range(0, len(self.keys), rows_per_part):
            end = start + rows_per_part
            yield ChangeBatch(
                SeqNo(self.first + start), self.keys[start:end], self.values[start:end]
            )


def prefix_end(prefix: bytes) -> bytes:
    """The smallest byte string above every string that starts with `prefix`."""
    stripped = prefix.rstrip(b"\xff")
    assert stripped, "a row key starts with key group and state id, never all ones"
    return stripped[:-1] + bytes([stripped[-1] + 1])
