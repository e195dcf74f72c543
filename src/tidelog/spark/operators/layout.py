"""The rows of a job's operator as Spark's state has them, and as an initial state hands them over.

Spark groups records by one column, `GROUP`: the key group (int). What Spark calls a key is a key
group here, so an operator sees what a subtask of an embedded job sees that owns this key group, and
all of its rows are what they are embedded: rows by time, and those that records of several keys
share. An *entry* is the key of a row of the table without its key group: the state's id (u16,
big-endian) and the state's own key (docs/internals/format.md). Spark keeps for each key group:

* the value state `state_name(operator)`, columns `STATE_SCHEMA`:
  `watermark` is how far event time is, null for not known; `due` is the time of the Spark timer
  that is registered, of processing time, null for none; `fires` is the watermark from which on
  something is due by event time, null for none; `times` is what is known of the watermarks of the
  inputs (`input_times`), null before the first batch and without event time; `seqno` is above that
  of all changes of the key group, as rows
  of lists and of records are numbered by it; `depth` and `root` are the rows as a tree of pages,
  and `next` is the number of the next new page. With depth 0 the root is a page of rows: a msgpack
  array of entry and value in turn, ascending by entry (`pack`). With a greater one it is a page of
  references to pages of one level below: a msgpack array of first entry and number (u32,
  big-endian) in turn. What a page has is at or after its first entry and before that of the next
  page. The first entry of the first page is empty;
* the map state `pages_name(operator)`, `number int` to `page binary`: all pages but the root.

No number is used twice. Pages take `PAGE_BYTES` or about so; a reader does not
rely on it, nor on the least depth.

An initial state is a data frame with a row of the operator in each of its rows, in any order:
columns `key_group int, state_id int, key binary, value binary`, as the view `state` of the data
source has them. `InitialState` has it with the `OperatorDescription`: which id is which state, and
how far event time is. The checkpoint of a query keeps the descriptions of its operators in the
document `OPERATORS`.
"""

from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from tidelog.checkpoint.manifest import AheadOfWatermark, StateInfo
from tidelog.storage.document import FORMAT_VERSION

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TIME_MODES: Final = {"none": "None", "processing": "ProcessingTime", "event": "EventTime"}
"""Our time modes and Spark's."""

GROUP: Final = "tidelog_group"
"""The grouping column: the key group."""
STATE_SCHEMA: Final = (
    "watermark bigint, due bigint, seqno bigint, depth int, root binary, next int, "
    "fires bigint, times binary"
)
PAGE_KEY_SCHEMA: Final = "number int"
PAGE_SCHEMA: Final = "page binary"
PAGE_BYTES: Final = 4096

OPERATORS: Final = "tidelog-operators.json"
"""The name of the document in the directory of a query's checkpoint."""

ROWS: Final = "tidelog_rows"
"""The column of the packed rows of a key group, as `handleInitialState` gets them."""
INITIAL_COLUMNS: Final = ("key_group", "state_id", "key", "value")

Row = tuple[bytes, bytes]
"""An entry and its value; or, in a page of references, a first entry and a number."""

_encode: Any = msgspec.msgpack.Encoder().encode
_decode: Any = msgspec.msgpack.Decoder(list[bytes]).decode


class OperatorDescription(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What the rows of an operator mean; the fields are those of a checkpoint's manifest."""

    operator: str
    key_groups: int
    states: tuple[StateInfo, ...]
    """Every state by its id, with those that the operator has no longer."""
    key_types: tuple[str, ...] = ()
    meaning: tuple[str, ...] = ()
    watermark: int | None = None
    """Event time at the hand-over, for key groups without state yet: Spark's begins at none."""
    ahead: tuple[AheadOfWatermark, ...] = ()
    """Key groups that were further than `watermark`."""
    seqno: int = 0
    """That of the hand-over: the greatest of all subtasks."""


Descriptions = dict[str, OperatorDescription]
"""By the name of the operator."""


class QueryOperators(msgspec.Struct, frozen=True):
    """The document `OPERATORS`."""

    operators: tuple[OperatorDescription, ...]
    format: int = FORMAT_VERSION


class InitialState(NamedTuple):
    """The state of an operator that a query begins with."""

    description: OperatorDescription
    rows: "DataFrame"


def state_name(operator: str) -> str:
    """The name of an operator's value state; by these names the operators of a query are known."""
    return f"tidelog_state:{operator}"


def pages_name(operator: str) -> str:
    return f"tidelog_pages:{operator}"


def pack(rows: list[Row]) -> bytes:
    """The bytes of a page with these rows."""
    packed: bytes = _encode(list(chain.from_iterable(rows)))
    return packed


def unpack(page: bytes) -> list[Row]:
    """The rows or references of a page."""
    fields = iter(_decode(page))
    return list(zip(fields, fields, strict=True))
