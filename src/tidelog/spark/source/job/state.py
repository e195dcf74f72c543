"""View `state` of a store, the restored rows of a checkpoint, a part per subtask; and what view
`changes` shares with it: the chosen checkpoints, and rows as columns.

Invariants: an unreadable slot is an error, never left out; the rows are those of the restore that a
job makes, which checks every byte; the local table is removed when its part has been read, or given
up; columns are made of all rows at once, but for the decoded ones, which are only made when asked
for.
"""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.catalog.inventory import find_checkpoint, read_slots
from tidelog.changelog.change import ROW_PREFIX_BYTES
from tidelog.changelog.columns import MAX_PAYLOAD_BYTES
from tidelog.checkpoint.manifest import (
    Checkpoint,
    OperatorState,
    StateInfo,
    SubtaskState,
    subtasks_of,
)
from tidelog.checkpoint.sizes import layer_bytes
from tidelog.checkpoint.slots import named_checkpoints, no_such_checkpoint
from tidelog.errors import ConfigError
from tidelog.ids import Slot
from tidelog.spark.source.parts import (
    ROWS,
    Arrays,
    ReadPart,
    ReadRequest,
    ReadSession,
    constants,
    from_arrays,
)
from tidelog.state.config import RestoreConfig
from tidelog.state.recovery.base_table import reading_factory
from tidelog.state.recovery.progress import RestoreProgress
from tidelog.state.recovery.restorer import Restorer
from tidelog.state.schema.decode import DecodedRow, RowDecoder
from tidelog.storage.port import ObjectStore
from tidelog.table.frame import Row
from tidelog.table.port import Table

_TO_THE_END: Final = MAX_PAYLOAD_BYTES
"""No key is longer; without an end pyarrow (26.0) fails on arrays that are slices themselves."""

_encode = msgspec.json.Encoder().encode


async def chosen(store: ObjectStore, request: ReadRequest) -> list[Checkpoint]:
    """The checkpoints that option checkpoint chose.

    Raises as `find_checkpoint`, also when it chose none of several.
    """
    numbers = request.options.filter.of("checkpoint")
    if request.options.checkpoints == "latest":
        return [await find_checkpoint(store, None)]
    if len(numbers.spans) == 1 and numbers.spans[0][0] == numbers.spans[0][1]:
        return [await find_checkpoint(store, Slot(numbers.spans[0][0]))]
    retained = (await read_slots(store)).all_checkpoints()
    matching = [checkpoint for checkpoint in retained if checkpoint.slot in numbers]
    if not matching:
        existing = named_checkpoints(retained)
        raise no_such_checkpoint(f"option checkpoint, store {store.url}", existing)
    return matching


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
            indexes = pc.index_in(state_id.cast(pa.int32()), value_set=ids)
            return pa.array(names, pa.string()).take(indexes)

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


_MIB: Final = 1 << 20
_BOUNDS: Final = RestoreConfig(read_ahead_bytes=32 * _MIB, replay_bytes=64 * _MIB)
"""Less memory than a job takes: a table is scanned once, while an executor runs other tasks."""
_BATCH_BYTES: Final = 2 << 20
"""Bytes of values that become one batch, or one value if it is larger."""


async def plan(store: ObjectStore, request: ReadRequest) -> Sequence[ReadPart]:
    """A part per subtask that may have rows wanted; raises as `chosen`."""
    accepts, parts = request.options.filter.accepts, []
    for checkpoint in await chosen(store, request):
        operators = checkpoint.operators
        if request.options.before_end and checkpoint.before_end:
            operators = checkpoint.before_end
        for operator, state in subtasks_of(operators):
            passes = accepts(operator=operator.id, subtask=state.index)
            if passes and any(_spans(request, state)):
                parts.append(StatePart(checkpoint.slot, operator, state))
    return parts


def _spans(request: ReadRequest, state: SubtaskState) -> Iterator[tuple[int, int]]:
    """The subtask's key groups that are wanted, as spans with their end excluded."""
    return request.options.filter.of("key_group").within(
        state.first_key_group, state.last_key_group + 1
    )


@dataclass(frozen=True, slots=True)
class StatePart:
    """One subtask as a checkpoint has it."""

    slot: int
    operator: OperatorState
    state: SubtaskState

    @property
    def size(self) -> int:
        return sum(map(layer_bytes, self.state.layers))

    def read(self, request: ReadRequest, session: ReadSession) -> Iterator[pa.RecordBatch]:
        with tempfile.TemporaryDirectory(
            prefix="tidelog-", dir=_work_dir(request.options.work_dir)
        ) as directory:
            table = self._restored(session, Path(directory) / "table")
            try:
                for start, end in _spans(request, self.state):
                    yield from self._rows(request, table, start, end)
            finally:
                table.close()

    def _restored(self, session: ReadSession, directory: Path) -> Table:
        progress = RestoreProgress.of(session.effects.clock, [self.state])
        factory = reading_factory(self.state.table, f"subtask {self.state.index}")
        restorer = Restorer(session.store, session.effects, factory, progress, _BOUNDS)
        what = f"{self.operator.id}-{self.state.index}"
        return session.run(restorer.restore(self.state, directory, what)).table

    def _rows(
        self, request: ReadRequest, table: Table, start: int, end: int
    ) -> Iterator[pa.RecordBatch]:
        for chunk in _chunks(table.scan(_lower(start), _lower(end) if end <= 0xFFFF else None)):
            keys, values = zip(*chunk, strict=True)
            rows = StoredRows(
                pa.array(keys, pa.binary()), pa.array(values, pa.binary()), self.operator.states
            )
            owner = constants(
                len(chunk),
                checkpoint=self.slot,
                operator=self.operator.id,
                subtask=self.state.index,
            )
            arrays = {**owner, **rows.arrays(*rows.numbers())}
            yield from_arrays(request.columns, len(chunk), arrays)


def _chunks(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Rows as batches have them: as many as memory is meant for."""
    chunk: list[Row] = []
    size = 0
    for row in rows:
        chunk.append(row)
        size += len(row[1])
        if size >= _BATCH_BYTES or len(chunk) == ROWS:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _lower(key_group: int) -> bytes:
    return key_group.to_bytes(2, "big")


def _work_dir(directory: str | None) -> str | None:
    if directory is not None and not Path(directory).is_dir():
        raise ConfigError(
            f"option workDir of the tidelog data source: {directory}",
            expected="a directory that exists on every executor",
            found="none on this one",
            action="create it there, or leave the option out",
        )
    return directory
