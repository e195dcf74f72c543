"""What a status says of subtasks, of what waits in their inputs, and of the last checkpoint."""

import asyncio
from itertools import pairwise
from random import Random

import pytest

from tests.support.clock import VirtualClock
from tests.support.pipelines import Outside
from tests.support.pressure import checkpoints, keyed_job, numbered, overtaken, pressed
from tidelog.effects import Effects, InlineOffload
from tidelog.runtime.runner import JobRunner
from tidelog.runtime.status.observe import status_of
from tidelog.runtime.status.operators import OperatorStatus
from tidelog.runtime.status.status import JobStatus
from tidelog.storage.memory import MemoryStore

SLOW_S = 0.2
"""What the operator of the job takes for each buffer."""


@pytest.fixture(scope="module")
def objects() -> MemoryStore:
    return MemoryStore("memory://pressed")


@pytest.fixture(scope="module")
def statuses(objects: MemoryStore) -> list[JobStatus]:
    """A job that is slower than its sources, looked at until its end, and after it."""
    clock = VirtualClock()
    job = keyed_job(numbered(4, 80), Outside(), clock, SLOW_S)
    effects = Effects(clock, Random(1), InlineOffload())
    runner = JobRunner(job, objects, pressed("always", parallelism=2), effects)
    seen: list[JobStatus] = []

    async def main() -> None:
        running = asyncio.ensure_future(runner.run())
        while not running.done():
            await clock.sleep(0.35)
            if runner.running:
                seen.append(status_of(runner))
        running.result()
        seen.append(status_of(runner))

    asyncio.run(main())
    return seen


def operator(status: JobStatus, id: str) -> OperatorStatus:
    return next(operator for operator in status.operators if operator.id == id)


def test_times_of_subtasks_add_up_to_those_of_their_operator(statuses: list[JobStatus]) -> None:
    for status in statuses:
        for each in status.operators:
            assert [task.subtask for task in each.tasks] == list(range(each.parallelism))
            assert sum(task.busy_s for task in each.tasks) == pytest.approx(each.busy_s)
            waited = sum(task.backpressured_s for task in each.tasks)
            assert waited == pytest.approx(each.backpressured_s)
    busy = [task.busy_s for task in operator(statuses[-1], "slow").tasks]
    assert all(seconds >= SLOW_S for seconds in busy)
    assert sum(task.backpressured_s for task in operator(statuses[-1], "source").tasks) > 0


def test_what_waits_in_inputs_is_counted_in_buffers_and_bytes(statuses: list[JobStatus]) -> None:
    full = max(statuses, key=lambda status: status.memory.channels_bytes)
    slow = operator(full, "slow")
    assert all(task.input_buffers > 1 for task in slow.tasks)
    for task in slow.tasks:
        # A buffer holds at least a record, and a record takes more than its three fields.
        assert task.input_bytes >= 50 * task.input_buffers
    inputs = sum(task.input_bytes for each in full.operators for task in each.tasks)
    assert full.memory.channels_bytes == inputs > 0
    assert all(task.input_buffers == 0 for task in operator(full, "source").tasks)
    assert all(task.input_buffers == 0 for each in statuses[-1].operators for task in each.tasks)


def test_the_last_checkpoint_is_described_as_it_is_stored(
    statuses: list[JobStatus], objects: MemoryStore
) -> None:
    stored = {checkpoint.slot: checkpoint for checkpoint in checkpoints(objects)}
    seen = [s.checkpoints for s in statuses if s.checkpoints.contents is not None]
    assert sum(each.contents.in_flight_buffers > 0 for each in seen) >= 2
    for each in seen:
        contents, checkpoint = each.contents, stored[each.last_slot]
        states = [state for _, state in checkpoint.subtasks()]
        facts = [state.barrier for state in states if state.barrier is not None]
        assert contents.in_flight_buffers == overtaken(checkpoint)
        assert contents.in_flight_bytes == sum(s.in_flight.bytes for s in states if s.in_flight)
        assert contents.unaligned_subtasks == sum(fact.unaligned for fact in facts)
        assert contents.start_delay_s == max(fact.start_delay_ms for fact in facts) / 1000
        assert contents.alignment_s == max(fact.alignment_ms for fact in facts) / 1000
        assert contents.transactions == sum(len(state.transactions) for state in states)
        assert contents.inline_bytes == sum(len(b) for state in states for b in state.inline)
        assert contents.replay_changes == sum(state.seqno - state.upto for state in states)


def test_the_age_of_a_checkpoint_begins_again_with_the_next_one(statuses: list[JobStatus]) -> None:
    for before, after in pairwise(statuses):
        passed = after.at_s - before.at_s
        age, earlier = after.checkpoints.age_s, before.checkpoints.age_s
        assert age is not None and earlier is not None
        if after.checkpoints.completed == before.checkpoints.completed:
            assert age == pytest.approx(earlier + passed)
        else:
            assert 0 <= age <= passed
    assert {status.checkpoints.interval_s for status in statuses} == {1.5}
