"""Rows of a query's operators as the log of a canonical savepoint, written by executors.

Invariants: the rows of a subtask are numbered and ascending, and in segments that nothing else
refers to; a task that is repeated writes the same objects again.
Format: docs/internals/format.md, "Canonical savepoints".
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import msgspec
import pyarrow as pa

from tidelog.changelog.block import SealedBlock, seal, seal_metadata
from tidelog.changelog.change import CHANGE_OVERHEAD_BYTES, ChangeBatch
from tidelog.changelog.segment import BlockGroup, LogRange, SegmentAuthor, pack
from tidelog.checkpoint.manifest import StateInfo
from tidelog.ids import CheckpointId, Generation, SeqNo
from tidelog.runtime.snapshots.canonical import BLOCK_BYTES
from tidelog.spark.handover.pages import groups_of
from tidelog.spark.operators.layout import Row
from tidelog.spark.source.parts import ReadSession, connected
from tidelog.state.key_groups import subtask_of
from tidelog.storage import object_names
from tidelog.storage.open import StoreAccess

SEGMENT_BYTES: Final = 8 << 20
"""Bytes of blocks, compressed, after which a segment ends."""
_SEGMENTS_MAX: Final = 1_000_000
"""More segments than a subtask has: their numbers are apart."""
RESULT_SCHEMA: Final = "subtask int, result binary"


class WrittenSubtask(msgspec.Struct, frozen=True, array_like=True):
    """The log of a subtask."""

    subtask: int
    log: tuple[LogRange, ...]
    end: SeqNo


@dataclass(frozen=True, slots=True)
class Target:
    """Where the rows of an operator go; travels to the executors pickled."""

    url: str
    access: StoreAccess
    generation: Generation
    checkpoint: CheckpointId
    operator: str
    number: int
    """Of the operator, in the names of its segments."""
    states: tuple[StateInfo, ...]
    key_groups: int
    parallelism: int
    start: SeqNo

    def subtask_of(self, key_group: int) -> int:
        return subtask_of(key_group, self.key_groups, self.parallelism)


@dataclass(slots=True)
class SubtaskLog:
    """Writes the log of one subtask."""

    target: Target
    subtask: int
    session: ReadSession
    _blocks: list[SealedBlock] = field(default_factory=list)
    _block_bytes: int = 0
    _keys: list[bytes] = field(default_factory=list)
    _values: list[bytes | None] = field(default_factory=list)
    _row_bytes: int = 0
    _ranges: list[LogRange] = field(default_factory=list)
    _end: SeqNo = field(init=False)
    _segments: int = 0

    def __post_init__(self) -> None:
        self._end = self.target.start
        metadata = msgspec.json.encode(self.target.states)
        self._add(seal_metadata(metadata, self._end))

    def put(self, key_group: int, rows: Iterable[Row]) -> None:
        """Add the rows of a key group, which come in the order of their keys."""
        prefix = key_group.to_bytes(2, "big")
        for entry, value in rows:
            self._keys.append(prefix + entry)
            self._values.append(value)
            self._row_bytes += len(entry) + len(value) + CHANGE_OVERHEAD_BYTES
            if self._row_bytes >= BLOCK_BYTES:
                self._seal()

    def finish(self) -> WrittenSubtask:
        """Write what is left; raises what the store raises."""
        if self._keys:
            self._seal()
        if self._blocks:
            self._upload()
        return WrittenSubtask(self.subtask, tuple(self._ranges), self._end)

    def _seal(self) -> None:
        batch = ChangeBatch(self._end, self._keys, self._values)
        self._end = batch.end
        self._keys, self._values, self._row_bytes = [], [], 0
        self._add(seal(batch))

    def _add(self, block: SealedBlock) -> None:
        self._blocks.append(block)
        self._block_bytes += block.size
        if self._block_bytes >= SEGMENT_BYTES:
            self._upload()

    def _upload(self) -> None:
        target = self.target
        subtasks = target.number * target.key_groups + self.subtask
        counter = subtasks * _SEGMENTS_MAX + self._segments
        self._segments += 1
        process = object_names.savepoint_process(target.checkpoint)
        name = object_names.segment(target.generation, process, counter)
        author = SegmentAuthor(target.generation, process, counter)
        group = BlockGroup(target.operator, self.subtask, self._blocks)
        packed = pack(author, name, [group])
        self.session.run(self.session.store.put(name, packed.data))
        self._ranges += packed.ranges
        self._blocks, self._block_bytes = [], 0


@dataclass(frozen=True, slots=True)
class GroupWriter:
    """The function of `mapInArrow` over pages, ordered by subtask and key group."""

    target: Target

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with connected(self.target.url, self.target.access) as session:
            log: SubtaskLog | None = None
            for group in groups_of(batches, self.target.operator):
                subtask = self.target.subtask_of(group.key_group)
                if log is not None and log.subtask != subtask:
                    yield _result(log.finish())
                    log = None
                if log is None:
                    log = SubtaskLog(self.target, subtask, session)
                log.put(group.key_group, group.rows)
            if log is not None:
                yield _result(log.finish())


def _result(subtask: WrittenSubtask) -> pa.RecordBatch:
    data = msgspec.msgpack.encode(subtask)
    arrays = [pa.array([subtask.subtask], pa.int32()), pa.array([data], pa.binary())]
    return pa.RecordBatch.from_arrays(arrays, names=["subtask", "result"])
