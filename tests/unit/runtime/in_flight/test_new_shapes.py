"""Records in flight find their operator whatever shape the job has after a restart."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from tests.support.clock import VirtualClock
from tests.support.pipelines import Outside
from tests.support.pressure import (
    SlowOutside,
    checkpoints,
    copy_of,
    numbered,
    numbering,
    overtaken,
    pressed,
    resumed_slowly,
    run_pressed,
)
from tidelog import Checkpoint, Job, RestoreError
from tidelog.checkpoint.finished import fully_finished
from tidelog.checkpoint.manifest import SubtaskState, encode_entry
from tidelog.storage import object_names
from tidelog.storage.memory import MemoryStore

Build = Callable[[Outside], Job]


def one_sink(sink: Outside) -> Job:
    """Keyed state in front of a slow sink of one subtask."""
    job = Job("one-sink")
    numbering(job.source(numbered())).sink(sink, parallelism=1)
    return job


def check(sink: Outside) -> None:
    """Every record once, and of every key in the order in which state saw them."""
    found = [record[:3] for record in sink.records]
    assert sorted(found) == sorted(numbered().records)
    by_key: dict[str, list[int]] = {}
    for key, _, _, number in sink.records:
        by_key.setdefault(key, []).append(number)
    for key, numbers in by_key.items():
        assert numbers == list(range(len(numbers))), key


def destinations(checkpoint: Checkpoint) -> set[tuple[str, int]]:
    """Where the records in flight are on their way to."""
    held = [subtask.in_flight for _, subtask in checkpoint.subtasks()]
    return {to for ref in held if ref is not None for to in ref.inputs}


def taken_under_pressure(
    job: Build, parallelism: int, **settings: Any
) -> tuple[MemoryStore, Outside, Checkpoint]:
    """A store, what was committed, and a checkpoint with records in flight."""
    clock, objects = VirtualClock(), MemoryStore("memory://shapes")
    sink = SlowOutside(clock)
    run_pressed(job(sink), objects, pressed(parallelism=parallelism, **settings), clock)
    check(sink)
    held = [checkpoint for checkpoint in checkpoints(objects) if overtaken(checkpoint)]
    return objects, sink, held[1]


def test_records_written_before_checkpoints_said_where_they_go_are_found_too() -> None:
    objects, sink, chosen = taken_under_pressure(one_sink, 3)
    operators = tuple(replace(o, subtasks=tuple(map(silent, o.subtasks))) for o in chosen.operators)
    older = copy_of(objects)
    entry = replace(chosen, operators=operators)
    older._store(object_names.checkpoint(chosen.slot), encode_entry(entry))
    check(resumed_slowly(one_sink, copy_of(older), sink, chosen, 1))


def silent(subtask: SubtaskState) -> SubtaskState:
    if subtask.in_flight is None:
        return subtask
    return replace(subtask, in_flight=replace(subtask.in_flight, inputs=()))


def test_records_behind_an_operator_that_finished_find_theirs_beside_it() -> None:
    """The keyed operator has ended and the sink has not: they cannot share a task."""
    objects, sink, _ = taken_under_pressure(one_sink, 3, channel_buffers=60)
    late = [
        checkpoint
        for checkpoint in checkpoints(objects)
        if destinations(checkpoint) == {("sink", 0)}
        and {o.id for o in checkpoint.operators if fully_finished(o)} == {"source", "process"}
    ]
    assert late, "the sink is slow, so the others end long before it"
    for chosen in late:
        check(resumed_slowly(one_sink, copy_of(objects), sink, chosen, 1))


def test_an_input_that_is_gone_is_refused_before_anything_is_written() -> None:
    def job(sink: Outside, *, both: bool) -> Job:
        job = Job("inputs")
        source = job.source(numbered())
        none = source.filter(lambda r: False)
        none.map(lambda r: r).sink(Outside(), name="nowhere")
        numbering(none.union(source) if both else source).sink(sink)
        return job

    two_inputs, one_input = partial(job, both=True), partial(job, both=False)
    objects, sink, chosen = taken_under_pressure(two_inputs, 2)
    assert ("process", 1) in destinations(chosen)
    before = dict(objects._objects)
    with pytest.raises(RestoreError, match=r"'process'.*input number 1"):
        resumed_slowly(one_input, objects, sink, chosen, 2)
    assert objects._objects == before, "the job that runs is not fenced"
