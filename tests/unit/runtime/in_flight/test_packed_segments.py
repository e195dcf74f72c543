"""In-flight data of many subtasks shares objects: their number does not grow with the job."""

import itertools
from typing import Any

import pytest

from tests.support.clock import VirtualClock
from tests.support.depth import more_in_depth
from tests.support.pipelines import Outside
from tests.support.pressure import (
    checkpoints,
    numbered,
    pressed,
    resumed,
    run_pressed,
    slowly,
    under_pressure,
)
from tidelog.changelog.upload_config import UploadConfig
from tidelog.checkpoint.manifest import Checkpoint
from tidelog.checkpoint.schedule import Schedule
from tidelog.runtime.config import JobConfig
from tidelog.runtime.graph import Job
from tidelog.storage.memory import MemoryStore

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
        checkpoint=Schedule(interval=0.8, timeout=1e6, tolerable_failures=0),
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


def test_a_restore_finds_each_subtasks_share_of_the_objects() -> None:
    def job(sink: Outside, clock: VirtualClock) -> Job:
        return fanned_out(2, clock, sink)[0]

    sink, store = under_pressure(job, settings(8))
    fullest = max(checkpoints(store), key=carriers)
    again = resumed(job, store, sink, fullest, settings(8))
    assert sorted(again.records) == sorted(sink.records) != []
