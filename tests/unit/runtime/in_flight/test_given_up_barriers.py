"""What a task does for a checkpoint ends with the checkpoint, whenever it is given up.

The barriers wait in full outputs here, and would overtake an hour later.
"""

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest

from tests.support.clock import VirtualClock
from tests.support.pipelines import Outside
from tests.support.pressure import keyed_job, numbered, pressed
from tidelog import Effects, FencedError, JobRunner, Schedule, UserFunctionError
from tidelog.effects import InlineOffload
from tidelog.ids import CheckpointId
from tidelog.runtime.snapshots.snapshotter import LogSnapshotter
from tidelog.runtime.tasks.task import Task
from tidelog.runtime.tasks.task_checkpoints import TaskCheckpoints
from tidelog.storage.memory import MemoryStore

FIRST = CheckpointId(1)
BROKEN = UserFunctionError("a sink", expected="an answer", found="none", action="mend it")


def pressed_runner() -> JobRunner:
    clock = VirtualClock()
    settings = pressed(
        "timeout",
        timeout=3600.0,
        channel_buffers=1,
        checkpoint=Schedule(interval=1.5, timeout=1e6, tolerable_failures=9),
    )
    job = keyed_job(numbered(), Outside(), clock)
    effects = Effects(clock, Random(1), InlineOffload())
    return JobRunner(job, MemoryStore("memory://given-up"), settings, effects)


async def left_behind(job: Coroutine[Any, Any, Any]) -> list[str]:
    """What still runs in the event loop when a job has failed."""
    with pytest.raises((UserFunctionError, FencedError, ZeroDivisionError)):
        await job
    await asyncio.sleep(0)
    mine = asyncio.current_task()
    names = [repr(each.get_coro()) for each in asyncio.all_tasks() if each is not mine]
    return [name for name in names if "VirtualClock" not in name]


def on_capture(
    monkeypatch: pytest.MonkeyPatch, then: Callable[[CheckpointId], Coroutine[Any, Any, None]]
) -> None:
    """Do this in the first source task, before it captures its state."""
    capture = LogSnapshotter.capture

    async def captured(self: Any, checkpoint: CheckpointId, position: Any) -> Any:
        if self.snapshots.operator == "source" and self.snapshots.subtask == 0:
            await then(checkpoint)
        return await capture(self, checkpoint, position)

    monkeypatch.setattr(LogSnapshotter, "capture", captured)


@pytest.mark.parametrize(
    "error", [BROKEN, FencedError("slot 3", action="stop"), ZeroDivisionError()], ids=repr
)
def test_a_task_whose_state_cannot_be_captured_leaves_no_timer_behind(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(checkpoint: CheckpointId) -> None:
        raise error

    on_capture(monkeypatch, fails)
    assert asyncio.run(left_behind(pressed_runner().run())) == []


def test_a_checkpoint_given_up_in_the_turn_of_its_capture_leaves_no_timer_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    take = TaskCheckpoints.take

    async def given_up(self: TaskCheckpoints, barrier: Any, *args: Any) -> None:
        await take(self, barrier, *args)
        if str(self._parts.id) == "source-0":
            self.abort(barrier.checkpoint)
            raise BROKEN

    monkeypatch.setattr(TaskCheckpoints, "take", given_up)
    assert asyncio.run(left_behind(pressed_runner().run())) == []


def test_a_checkpoint_given_up_while_a_task_captures_its_state_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runner, settling = pressed_runner(), dict[CheckpointId, list[CheckpointId]]()

    def source() -> Task:
        assert runner.incarnation is not None
        return runner.incarnation.tasks[0]

    async def declined(checkpoint: CheckpointId) -> None:
        settling[checkpoint] = list(source()._checkpoints._settling)
        if checkpoint == FIRST:
            source().parts.listener.declined(checkpoint, "as the test wants")
            await runner.effects.clock.sleep(0.01)

    on_capture(monkeypatch, declined)
    asyncio.run(runner.run())
    assert len(settling) > 2
    assert all(FIRST not in under_way for under_way in settling.values())
