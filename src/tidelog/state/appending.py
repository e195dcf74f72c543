"""Appends to lists that are kept as numbered rows behind a prefix.

Invariants: an append is blind (nothing is read from the table), elements stay in order, and a row
has a bounded number of elements. A row is numbered by the backend's sequence number or, where that
row is full, by the next free number: each row of a flush raises the sequence number by one, so no
later flush gives a number again.
"""

from typing import Any, Final

from tidelog.changelog.state_rows import StateRows
from tidelog.changelog.write_buffer import SLICE_ROWS
from tidelog.state.backend import KeyedBackend

MOST_ELEMENTS: Final = SLICE_ROWS
"""Elements of a row: it is encoded and decoded in one go."""
_POSITION_BYTES: Final = 8


def append(backend: KeyedBackend, rows: StateRows, prefix: bytes, elements: list[Any]) -> bool:
    """Append elements to the list behind the prefix; whether they are the first since a flush."""
    position = int(backend.seqno)
    first = rows.changed(prefix + position.to_bytes(_POSITION_BYTES, "big")) is None
    at = 0
    while at < len(elements):
        row = prefix + position.to_bytes(_POSITION_BYTES, "big")
        # A row of this number exists only when it was put since the last flush, so this is a
        # look-up in the buffer; its list belongs to the buffer and may grow in place.
        held = rows.changed(row)
        if held is None:
            held = elements[at : at + MOST_ELEMENTS]
            rows.put(row, held)
            added, counted = len(held), len(held) - 1
        else:
            more = elements[at : at + MOST_ELEMENTS - len(held)]
            held.extend(more)
            added = counted = len(more)
        if counted > 0:
            backend.grew(counted, held[-1])
        at += added
        position += 1
    return first
