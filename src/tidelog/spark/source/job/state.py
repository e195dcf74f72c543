"""View `state` of a store: the restored rows of a checkpoint, a part per subtask.

Invariants: the rows are those of the restore that a job makes, which checks every byte; the local
table is removed when its part has been read, or given up.
"""

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa

from tidelog.checkpoint.manifest import OperatorState, SubtaskState
from tidelog.checkpoint.sizes import layer_bytes
from tidelog.errors import ConfigError
from tidelog.spark.source import frames
from tidelog.spark.source.job.rows import StoredRows, chosen
from tidelog.spark.source.parts import ReadPart, ReadRequest, Session
from tidelog.state.config import RestoreConfig
from tidelog.state.restore.base_table import reading_factory
from tidelog.state.restore.progress import RestoreProgress
from tidelog.state.restore.restorer import Restorer
from tidelog.storage.port import ObjectStore
from tidelog.table.frame import Row
from tidelog.table.port import Table

_MIB: Final = 1 << 20
_BOUNDS: Final = RestoreConfig(read_ahead_bytes=32 * _MIB, replay_bytes=64 * _MIB)
"""Less memory than a job takes: a table is scanned once, while an executor runs other tasks."""
_BATCH_BYTES: Final = 2 << 20
"""Bytes of values that become one batch, or one value if it is larger."""


async def plan(store: ObjectStore, request: ReadRequest) -> Sequence[ReadPart]:
    """A part per subtask that may have rows wanted; raises as `chosen`."""
    return [
        StatePart(checkpoint.slot, operator, state)
        for checkpoint in await chosen(store, request)
        for operator, state in checkpoint.subtasks()
        if request.options.filter.accepts(operator=operator.id, subtask=state.index)
        and any(_spans(request, state))
    ]


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

    def read(self, request: ReadRequest, session: Session) -> Iterator[pa.RecordBatch]:
        with tempfile.TemporaryDirectory(
            prefix="tidelog-", dir=_work_dir(request.options.work_dir)
        ) as directory:
            table = self._restored(session, Path(directory) / "table")
            try:
                for start, end in _spans(request, self.state):
                    yield from self._rows(request, table, start, end)
            finally:
                table.close()

    def _restored(self, session: Session, directory: Path) -> Table:
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
            stored = StoredRows(
                pa.array(keys, pa.binary()), pa.array(values, pa.binary()), self.operator.states
            )
            owner = frames.constants(
                len(chunk), slot=self.slot, operator=self.operator.id, subtask=self.state.index
            )
            arrays = {**owner, **stored.arrays(*stored.numbers())}
            yield frames.from_arrays(request.columns, len(chunk), arrays)


def _chunks(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Rows as batches have them: as many as memory is meant for."""
    chunk: list[Row] = []
    size = 0
    for row in rows:
        chunk.append(row)
        size += len(row[1])
        if size >= _BATCH_BYTES or len(chunk) == frames.ROWS:
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
