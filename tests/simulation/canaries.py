"""Deliberate defects in the real code: the simulation has to find such ones."""

import dataclasses
from typing import Any

import pytest

from tidelog.checkpoint.collector import Collector
from tidelog.checkpoint.manifest import Checkpoint
from tidelog.checkpoint.slots import SlotLog
from tidelog.dstl.chain import LogChain
from tidelog.dstl.uploader import Uploader
from tidelog.errors import FencedError
from tidelog.ids import SeqNo
from tidelog.materialize.snapshot import Captured, TableSnapshots
from tidelog.runtime.checkpointing import CheckpointDriver
from tidelog.runtime.tasks.alignment import Aligned, Alignment


def log_cut_one_change_too_early(patch: pytest.MonkeyPatch) -> None:
    """A materialization claims one change more than its table has."""
    capture = TableSnapshots.capture

    def greedy(self: TableSnapshots, upto: SeqNo) -> Captured:
        return dataclasses.replace(capture(self, upto), upto=SeqNo(upto + 1))

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

    async def careless(self: Collector) -> None:
        self.live = set
        await collect(self)

    patch.setattr(Collector, "collect", careless)


def an_upload_that_ends_wakes_too_early(patch: pytest.MonkeyPatch) -> None:
    """The next upload is started before the place of the one that ended is free."""
    release = Uploader._release

    def early(self: Uploader, taken: Any) -> None:
        release(self, taken)
        self._wake.set()

    patch.setattr(Uploader, "_release", early)
    patch.setattr(Uploader, "_ended", lambda self, upload: self._uploads.discard(upload))


def a_log_that_is_never_cut(patch: pytest.MonkeyPatch) -> None:
    """Manifests name all log there ever was."""
    patch.setattr(LogChain, "truncate", lambda self, below: None)
