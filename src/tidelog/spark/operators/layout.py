"""The rows of a job's operator as Spark's state has them, and as an initial state hands them over.

Spark groups records by one column, `KEY`: the key as `encode_key` encodes it, so keys of all types
are what they are embedded. An *entry* is the key of a row of the table without its key group: the
state's id (u16, big-endian) and what follows it (docs/internals/format.md). The key group follows
from the key. Spark keeps for each key:

* the value state `STATE`, columns `STATE_SCHEMA`. `due`: the time of the earliest Spark timer that is
  registered for the key, null for none. `rows`: all rows of the key, packed (`pack`), while they
  take at most `PART_BYTES`; else null, and `parts` names the parts: a msgpack array of
  `[first entry, number]`, ascending;
* the map state `PARTS`, `number int` to `rows binary`: each part is packed rows, ascending, from its
  first entry to the next part's.

An initial state is a data frame of the columns `KEY binary, ROWS array<struct<entry binary, value
binary>>`: one row for each key, or several for a key with many rows, whose entries ascend from row
to row and within them. It comes with the `OperatorDescription` of the rows: which id is which
state, and how far event time is. What Spark is to fire is read from the rows of the states whose
names end in `-by-time`. The description is stored at `description_path(checkpoint, operator)`.
"""

from itertools import chain
from typing import Any, Final

import msgspec

from tidelog.checkpoint.manifest import AheadOfWatermark, StateInfo

KEY: Final = "tidelog_key"
"""The grouping column: the encoded key."""
STATE: Final = "tidelog_rows"
STATE_SCHEMA: Final = "due bigint, rows binary, parts binary"
PARTS: Final = "tidelog_parts"
PART_KEY_SCHEMA: Final = "number int"
PART_SCHEMA: Final = "rows binary"
PART_BYTES: Final = 1 << 16
"""Packed rows of a key up to this size are one value; more of them are divided."""

ROWS: Final = "tidelog_rows"
"""The column of an initial state that has the rows of a key."""
INITIAL_SCHEMA: Final = f"{KEY} binary, {ROWS} array<struct<entry: binary, value: binary>>"

Row = tuple[bytes, bytes]
"""An entry and its value."""

_encode: Any = msgspec.msgpack.Encoder().encode
_decode: Any = msgspec.msgpack.Decoder(list[bytes]).decode


class OperatorDescription(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What an operator's rows mean, for all keys; the fields are those of a checkpoint's manifest."""

    operator: str
    key_groups: int
    states: tuple[StateInfo, ...]
    """Every state by its id, with those that the operator has no longer."""
    key_types: tuple[str, ...] = ()
    meaning: tuple[str, ...] = ()
    watermark: int | None = None
    """Event time at the hand-over: Spark's own begins at none."""
    ahead: tuple[AheadOfWatermark, ...] = ()
    """Key groups that were further than `watermark`."""


def description_path(checkpoint: str, operator: str) -> str:
    """Where the description of an operator lies in the checkpoint of a query."""
    return f"{checkpoint.rstrip('/')}/tidelog/{operator}.json"


def pack(rows: list[Row]) -> bytes:
    """Rows as one value: a msgpack array of entry and value in turn, ascending by entry."""
    packed: bytes = _encode(list(chain.from_iterable(rows)))
    return packed


def unpack(data: bytes) -> list[Row]:
    """The rows of one value."""
    fields = iter(_decode(data))
    return list(zip(fields, fields, strict=True))
