"""What views `changes` and `state` of a store share: the chosen checkpoints, and rows as columns.

Invariants: an unreadable slot is an error, never left out; no record is touched one by one, except
by the decoded columns, which are only made when they are asked for.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.catalog.inventory import find_checkpoint, read_slots
from tidelog.changelog.change import ROW_PREFIX_BYTES
from tidelog.changelog.columns import MAX_PAYLOAD_BYTES
from tidelog.checkpoint.manifest import Checkpoint, StateInfo
from tidelog.errors import ObjectNotFoundError
from tidelog.ids import Slot
from tidelog.spark.source.frames import Arrays
from tidelog.spark.source.parts import ReadRequest
from tidelog.state.schema.decode import DecodedRow, RowDecoder
from tidelog.storage.port import ObjectStore

_TO_THE_END: Final = MAX_PAYLOAD_BYTES
"""No key is longer; without an end pyarrow (26.0) fails on arrays that are slices themselves."""

_encode = msgspec.json.Encoder().encode


async def chosen(store: ObjectStore, request: ReadRequest) -> list[Checkpoint]:
    """The checkpoints that option slot chose.

    Raises as `find_checkpoint`, and ObjectNotFoundError when it chose none of those there are.
    """
    numbers = request.options.filter.of("slot")
    if request.options.slots == "latest":
        return [await find_checkpoint(store, None)]
    if len(numbers.spans) == 1 and numbers.spans[0][0] == numbers.spans[0][1]:
        return [await find_checkpoint(store, Slot(numbers.spans[0][0]))]
    retained = (await read_slots(store)).all_checkpoints()
    found = [each for each in retained if each.slot in numbers]
    if not found:
        slots = ", ".join(str(each.slot) for each in retained)
        raise ObjectNotFoundError(
            f"option slot, store {store.url}",
            expected=f"slots of checkpoints, such as {slots or 'none yet'}",
            found="none of them",
            action="choose a checkpoint that `tidelog checkpoints list URL` shows",
        )
    return found


@dataclass(frozen=True, slots=True)
class StoredRows:
    """Rows of one operator: full row keys, values (null: deleted), and the states they are of."""

    key: pa.Array
    value: pa.Array
    states: tuple[StateInfo, ...]

    def numbers(self) -> tuple[pa.Array, pa.Array]:
        """Key groups and state ids of the rows."""
        prefixes = pc.binary_slice(self.key, 0, ROW_PREFIX_BYTES)
        # A slice has buffers of its own, in which the prefixes lie one after the other.
        pairs = np.frombuffer(prefixes.buffers()[2], ">u2")[: 2 * len(self.key)]
        columns = pairs.reshape(-1, 2).astype("int32")
        return pa.array(columns[:, 0]), pa.array(columns[:, 1])

    def arrays(self, key_group: pa.Array, state_id: pa.Array) -> Arrays:
        """The columns of rows, given their numbers."""

        def named(names: Sequence[str]) -> pa.Array:
            ids = pa.array([info.id for info in self.states], pa.int32())
            found = pc.index_in(state_id.cast(pa.int32()), value_set=ids)
            return pa.array(names, pa.string()).take(found)

        return {
            "key_group": lambda: key_group,
            "state_id": lambda: state_id,
            "state": lambda: named([info.name for info in self.states]),
            "state_kind": lambda: named([info.kind for info in self.states]),
            "key": lambda: pc.binary_slice(self.key, ROW_PREFIX_BYTES, _TO_THE_END),
            "value": lambda: self.value,
            **self._decoded(),
        }

    def _decoded(self) -> Arrays:
        @cache
        def rows() -> list[DecodedRow]:
            decode = RowDecoder(self.states).decode
            return list(map(decode, self.key.to_pylist(), self.value.to_pylist()))

        def column(part: Callable[[DecodedRow], Any]) -> Callable[[], pa.Array]:
            return lambda: pa.array([_json(row, part(row)) for row in rows()], pa.string())

        return {
            "key_json": column(lambda row: row.key),
            "entry_json": column(lambda row: row.entry),
            "value_json": column(lambda row: row.value),
            "expires_json": column(lambda row: row.expires_ms),
        }


def _json(row: DecodedRow, value: Any) -> str | None:
    """A part of a row as JSON; null for one that is not there, or that cannot be decoded."""
    return None if value is None or row.encoding != "decoded" else _encode(value).decode()
