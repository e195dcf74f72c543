"""Deliberate defects in the real code: the simulation has to find such ones."""

import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from tidelog import Checkpoint, CorruptObjectError, FencedError
from tidelog.changelog.chain import SubtaskLogChain
from tidelog.changelog.uploader import Uploader
from tidelog.checkpoint.garbage_collector import Collector
from tidelog.checkpoint.manifest import SubtaskState
from tidelog.checkpoint.slots import SlotLog
from tidelog.connectors.files.parts import OpenPart, failures, remove_pending
from tidelog.connectors.files.sink import FilesWriter
from tidelog.ids import Generation, SeqNo, Slot
from tidelog.materialize.table_snapshot import Captured, TableSnapshots
from tidelog.runtime import runner
from tidelog.runtime.channels.messages import Message, Watermark
from tidelog.runtime.channels.partition import Partitioner, Rebalance
from tidelog.runtime.checkpoints import entries
from tidelog.runtime.checkpoints.driver import CheckpointDriver
from tidelog.runtime.checkpoints.stored_objects import StoredObjects
from tidelog.runtime.node import Edge
from tidelog.runtime.restore import assign
from tidelog.runtime.subtasks import vertices
from tidelog.runtime.subtasks.vertices import Vertex
from tidelog.runtime.subtasks.wiring import Wiring
from tidelog.runtime.tasks import source_task
from tidelog.runtime.tasks.alignment import Aligned, Alignment
from tidelog.runtime.tasks.source_task import SourceTask
from tidelog.runtime.tasks.split_reading import SplitReading
from tidelog.runtime.tasks.stream_task import StreamTask
from tidelog.runtime.tasks.watermarks import LeastWatermark
from tidelog.state.event_time import MAX_WATERMARK, EventTime
from tidelog.state.recovery.hydration import TableHydration
from tidelog.state.schema.types import KnownTypes
from tidelog.table.frame import Row
from tidelog.table.hydrating import HydratingTable
from tidelog.table.rocksdb import RocksTable


def log_cut_one_change_too_early(patch: pytest.MonkeyPatch) -> None:
    """A materialization claims one change more than its table has."""
    capture = TableSnapshots.capture

    def greedy(self: TableSnapshots, upto: SeqNo) -> Captured:
        return msgspec.structs.replace(capture(self, upto), upto=SeqNo(upto + 1))

    patch.setattr(TableSnapshots, "capture", greedy)


def commit_before_the_manifest_is_durable(patch: pytest.MonkeyPatch) -> None:
    """Sinks commit as soon as all tasks have acknowledged."""
    store = CheckpointDriver._store

    async def hasty(self: CheckpointDriver, decision: Any) -> None:
        for task in self.tasks:
            await task.complete(decision.checkpoint)
        await store(self, decision)

    patch.setattr(CheckpointDriver, "_store", hasty)


def barriers_that_hold_nothing_back(patch: pytest.MonkeyPatch) -> None:
    """Records behind a barrier are handled before the snapshot."""
    barrier = Alignment.barrier

    def open_gate(self: Alignment, *arguments: Any, **named: Any) -> Aligned:
        return dataclasses.replace(barrier(self, *arguments, **named), block=False)

    patch.setattr(Alignment, "barrier", open_gate)


def a_taken_slot_counts_as_won(patch: pytest.MonkeyPatch) -> None:
    """No fencing: a zombie goes on in the next slot."""
    append = SlotLog.append

    async def deaf(self: SlotLog, entry: Checkpoint) -> Checkpoint | None:
        try:
            return await append(self, entry)
        except FencedError:
            return entry

    patch.setattr(SlotLog, "append", deaf)


def objects_in_use_are_collected(patch: pytest.MonkeyPatch) -> None:
    """The collector forgets what running tasks refer to."""
    collect = Collector.collect

    async def nothing() -> set[str]:
        return set()

    async def careless(self: Collector, live: object) -> None:
        await collect(self, nothing)

    patch.setattr(Collector, "collect", careless)


def an_upload_that_ends_wakes_too_early(patch: pytest.MonkeyPatch) -> None:
    """The next upload is started before the place of the one that ended is free."""
    release = Uploader._release

    def early(self: Uploader, taken: Any) -> None:
        release(self, taken)
        self._wake.set()

    def asleep(self: Uploader, upload: Any, packed: int) -> None:
        self._uploads.discard(upload)
        self._packed_bytes -= packed
        self._room.freed.set()

    patch.setattr(Uploader, "_release", early)
    patch.setattr(Uploader, "_ended", asleep)


def a_log_that_is_never_cut(patch: pytest.MonkeyPatch) -> None:
    """Manifests name all log there ever was."""
    patch.setattr(SubtaskLogChain, "truncate", lambda self, below: None)


def a_late_start_removes_what_its_successor_wrote(patch: pytest.MonkeyPatch) -> None:
    """A start aborts whatever it finds, also what a newer generation left open, or counts on."""
    recover = FilesWriter.recover

    def tidy(self: FilesWriter, transactions: Sequence[bytes]) -> None:
        recover(self, transactions)
        remove_pending(self._directory, lambda _, subtask: self._context.recovers_for(subtask), ())

    patch.setattr(FilesWriter, "recover", tidy)


def splits_that_have_not_begun_hold_nothing_back(patch: pytest.MonkeyPatch) -> None:
    """The watermark of a subtask is that of the splits it has read."""
    _watermark_of_begun_splits(patch, min)


def the_split_that_is_furthest_makes_the_watermark(patch: pytest.MonkeyPatch) -> None:
    """Event time is as far as the greatest time read in any split of a subtask."""
    _watermark_of_begun_splits(patch, max)


def _watermark_of_begun_splits(patch: pytest.MonkeyPatch, which: Callable[..., Any]) -> None:
    class Wrong(LeastWatermark):
        @property
        def mark(self) -> int | None:
            marks = [mark for mark in self._marks.values() if mark is not None]
            return which(marks, default=None)

    patch.setattr(source_task, "LeastWatermark", Wrong)


def event_times_before_1970_are_late(patch: pytest.MonkeyPatch) -> None:
    """Before any watermark event time stands at the beginning of 1970."""
    of = EventTime.of
    patch.setattr(EventTime, "of", lambda self, group: max(-1, of(self, group)))


def what_one_subtask_emits_is_spread(patch: pytest.MonkeyPatch) -> None:
    """Operators have the job's parallelism, and streams of fewer subtasks are spread over them."""
    partitioner = Wiring.partitioner

    def spread(self: Wiring, edge: Edge, subtask: int, consumer: Vertex) -> Partitioner:
        found = partitioner(self, edge, subtask, consumer)
        uneven = edge.routing == "forward" and consumer.parallelism > 1
        return Rebalance(consumer.parallelism, subtask) if uneven else found

    patch.setattr(Wiring, "partitioner", spread)
    patch.setattr(vertices, "_parallelism", lambda node, _, of_job: node.parallelism or of_job)


def a_failed_pre_commit_seals_its_files(patch: pytest.MonkeyPatch) -> None:
    """Parts that were made durable before another one failed are written to again."""

    def careless(self: OpenPart) -> None:
        with failures(self._path):
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()

    patch.setattr(OpenPart, "seal", careless)


def an_exited_source_keeps_its_whole_log(patch: pytest.MonkeyPatch) -> None:
    """Positions of subtasks that have finished name log that their table covers."""
    exited_state = entries.exited_state

    def whole(state: SubtaskState, *, positions: bool) -> SubtaskState:
        left = exited_state(state, positions=positions)
        return msgspec.structs.replace(left, log=state.log) if positions else left

    patch.setattr(entries, "exited_state", whole)


def a_free_name_is_a_slot_won(patch: pytest.MonkeyPatch) -> None:
    """Nobody looks above a slot that was created: a successor may have taken and dropped it."""
    prove_newest = SlotLog.prove_newest

    async def trusting(self: SlotLog, slot: Slot, generation: Generation) -> None:
        if slot == Slot(generation):  # That of its own start.
            await prove_newest(self, slot, generation)

    patch.setattr(SlotLog, "prove_newest", trusting)


def key_groups_forget_their_event_time(patch: pytest.MonkeyPatch) -> None:
    """A rescale keeps the least watermark only: what fired beyond it fires again."""
    patch.setattr(assign, "_ahead", lambda *_: ())


def only_the_first_split_is_read(patch: pytest.MonkeyPatch) -> None:
    """The next split of a subtask has its turn when the one before it has ended."""

    def first(self: SourceTask) -> SplitReading | None:
        reading = next(iter(self._reads), None)
        return reading if reading is not None and reading.due_at <= self._now() else None

    patch.setattr(SourceTask, "_next", first)


def an_input_that_ends_lets_foreign_watermarks_pass(patch: pytest.MonkeyPatch) -> None:
    """Behind the end of an input, event times given anew are mixed with those given before."""
    receive = StreamTask._receive

    async def jumping(self: StreamTask, channel: int, message: Message) -> None:
        await receive(self, channel, message)
        ended = isinstance(message, Watermark) and message.time == MAX_WATERMARK
        if ended and self._valve.time is not None:
            await self._advance_watermark(self._valve.time)

    patch.setattr(StreamTask, "_receive", jumping)


def changed_types_are_taken_in_silence(patch: pytest.MonkeyPatch) -> None:
    """Keys and values of other types than those stored are stored beside them."""
    patch.setattr(KnownTypes, "allows", lambda self, kind: True)


def declared_types_are_not_compared(patch: pytest.MonkeyPatch) -> None:
    """A start goes on from state of types that the job does not declare, nor migrates."""
    patch.setattr(KnownTypes, "check_declared", lambda self: None)


def a_clone_shares_what_it_came_from(patch: pytest.MonkeyPatch) -> None:
    """The first checkpoint of a clone names objects that only the store it came from has."""
    choose = runner.choose

    async def sharing(*arguments: Any) -> Any:
        return msgspec.structs.replace(await choose(*arguments), detached=False)

    patch.setattr(runner, "choose", sharing)


def a_savepoint_does_not_look_at_what_it_names(patch: pytest.MonkeyPatch) -> None:
    async def nothing(*_: object) -> None:
        return None

    patch.setattr(StoredObjects, "look", nothing)
    patch.setattr(StoredObjects, "lacking", nothing)


def a_row_that_has_not_arrived_is_absent(patch: pytest.MonkeyPatch) -> None:
    """A read that meets a hole in a table's file takes it for the end of what is there."""

    def impatient(self: HydratingTable, key: bytes) -> bytes | None:
        try:
            return self._db.get(key)  # type: ignore[return-value]
        except Exception:
            return None

    def impatient_many(self: HydratingTable, keys: Sequence[bytes]) -> list[bytes | None]:
        return [impatient(self, key) for key in keys]

    async def nothing(self: TableHydration, *_: object, **__: object) -> None:
        """Nothing is fetched before a buffer."""

    patch.setattr(HydratingTable, "get", impatient)
    patch.setattr(HydratingTable, "get_many", impatient_many)
    patch.setattr(TableHydration, "ensure", nothing)


def a_scan_ends_where_a_row_has_not_arrived(patch: pytest.MonkeyPatch) -> None:
    """A scan that meets a hole in a table's file gives the rows before it."""

    def scan(self: HydratingTable, lower: bytes, upper: bytes | None) -> Iterator[Row]:
        with suppress(CorruptObjectError):
            yield from RocksTable.scan(self, lower, upper)

    patch.setattr(HydratingTable, "scan", scan)
