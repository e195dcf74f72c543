"""In-flight data comes back in order, however many blocks it is cut into.

In-flight data of many subtasks shares objects: their number does not grow with the job.
"""

import itertools
from typing import Any

import pytest

from tests.support.clock import VirtualClock
from tests.support.depth import more_in_depth
from tests.support.pipelines import Outside
from tests.support.pressure import checkpoints, numbered, pressed, run_pressed, slowly
from tidelog import Checkpoint, CheckpointConfig, Job, JobConfig, UploadConfig
from tidelog.changelog.block import open_block
from tidelog.ids import SeqNo
from tidelog.runtime.channels.messages import Batch, Watermark
from tidelog.runtime.in_flight import codec
from tidelog.runtime.in_flight.capture import ChannelData, ChannelId
from tidelog.runtime.in_flight.codec import decode, encode
from tidelog.state.objects.classes import RecordTypes
from tidelog.storage.memory import MemoryStore

CHANNEL = ChannelId("count", 0, 1, 2, at_producer=True)
BASIC = RecordTypes()


def through(parts: list[ChannelData], types: RecordTypes = BASIC) -> list[ChannelData]:
    sealed = encode(parts, types, SeqNo(5)).blocks
    assert sealed[0].first == 5
    assert [block.first for block in sealed[1:]] == [block.end for block in sealed[:-1]]
    return decode([open_block(block.data) for block in sealed], types)


def test_long_data_is_cut_into_blocks_and_keeps_its_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "BLOCK_BYTES", 100)
    other = ChannelId("count", 0, 1, 3, at_producer=True)
    parts = [
        ChannelData(CHANNEL, [Batch([n] * 20) for n in range(9)]),
        ChannelData(other, [Watermark(1), Batch(["x"])]),
    ]
    assert len(encode(parts, BASIC, SeqNo(0)).blocks) > 2
    back = through(parts)
    for part in parts:
        pieces = [piece.data for piece in back if piece.channel == part.channel]
        assert [message for piece in pieces for message in piece] == part.data
    assert encode([], BASIC, SeqNo(3)).blocks == []


MOST_OBJECTS = 4
"""However many subtasks have in-flight data; the tail of the linger may miss some of them."""
SPLITS, LENGTH = 12, 14


def fanned_out(tasks: int, clock: VirtualClock, sink: Outside) -> tuple[Job, list[Any]]:
    """Tasks behind each other, each of which doubles its records: so all their inputs are full."""
    source = numbered(SPLITS, LENGTH, keys=40, portion=LENGTH)
    job = Job("fan-out")
    stream = job.source(source, parallelism=SPLITS)
    for _ in range(tasks):
        stream = slowly(stream.key_by(hash), clock, 0.05).flat_map(lambda r: [(*r, 0), (*r, 1)])
    stream.sink(sink)
    copies = list(itertools.product((0, 1), repeat=tasks))
    return job, sorted((*record, *copy) for record in source.records for copy in copies)


def settings(subtasks: int) -> JobConfig:
    return pressed(
        parallelism=subtasks,
        key_groups=64,
        channel_buffers=2,
        checkpoint=CheckpointConfig(interval=0.8, timeout=1e6, tolerable_failures=0),
        # Nothing small goes into the manifest: all in-flight data is in objects.
        upload=UploadConfig(inline_bytes=0),
    )


def carriers(checkpoint: Checkpoint) -> int:
    """Subtasks whose in-flight data the checkpoint holds."""
    return sum(1 for _, subtask in checkpoint.subtasks() if subtask.in_flight is not None)


def objects_of(checkpoint: Checkpoint) -> set[str]:
    """The objects that hold the in-flight data of a checkpoint."""
    found = [s.in_flight for _, s in checkpoint.subtasks() if s.in_flight is not None]
    assert not any(in_flight.inline for in_flight in found)
    return {part.segment for in_flight in found for part in in_flight.log}


@pytest.mark.parametrize(("tasks", "subtasks"), [(1, 4), more_in_depth((3, 8), (4, 12))])
def test_objects_of_in_flight_data_do_not_grow_with_tasks_times_subtasks(
    tasks: int, subtasks: int
) -> None:
    store, sink, clock = MemoryStore("memory://packed"), Outside(), VirtualClock()
    job, records = fanned_out(tasks, clock, sink)
    run_pressed(job, store, settings(subtasks), clock)
    assert sorted(sink.records) == records
    taken = checkpoints(store)
    assert max(map(carriers, taken)) >= 0.75 * tasks * subtasks, "nearly all have some"
    assert max(len(objects_of(checkpoint)) for checkpoint in taken) <= MOST_OBJECTS
