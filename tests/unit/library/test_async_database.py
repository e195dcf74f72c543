"""An asyncio program has the same database, and its event loop is never held up for long."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

import tidelog
from tests.unit.library.conftest import NEVER, OFTEN, STATES, Broken, opened
from tidelog import AsyncDatabase, CheckpointConfig, JobConfig, ValueState
from tidelog.errors import ConfigError, StateSchemaError, UserFunctionError


def opened_async(
    url: str, config: JobConfig = NEVER, **states: Any
) -> AbstractAsyncContextManager[AsyncDatabase]:
    return tidelog.open_async(url, states or STATES, config=config)


async def test_what_was_changed_in_steps_is_there_again_with_the_position(url: str) -> None:
    async with opened_async(url) as db:
        assert db.position is None
        async with db.step():
            db.key("a").total.set(7)
            db.key("a").seen.set("x", 5)
            db.advance("t", 1)
            db.key("b").total.set(8)  # an advance does not end the step
        taken = await db.checkpoint()
        assert (await db.savepoint("kept")).slot == taken.slot + 1
        assert db.position == {"t": 1}
        async with db.step():
            db.key("c").total.set(9)
    async with opened_async(url) as db:
        assert db.position == {"t": 1}
        assert db.key("a").seen.items() == [("x", 5)]
        found = [row async for row in db.scan("total")]
        assert found == [("a", 7), ("b", 8), ("c", 9)]
    with opened(url) as db:
        assert db.key("c").total.get() == 9


async def test_steps_of_many_tasks_are_whole_in_every_checkpoint(url: str) -> None:
    async def count(db: AsyncDatabase, name: str) -> None:
        for _ in range(400):
            async with db.step():
                for side in ("left", "right"):
                    total = db.key(f"{name}-{side}").total
                    total.set((total.get() or 0) + 1)
                    if len(name) == 1:  # others have a turn in the middle of the step
                        await asyncio.sleep(0)
            await asyncio.sleep(0)

    for _ in range(3):
        with pytest.raises(Broken):
            async with opened_async(url, OFTEN) as db:
                await asyncio.gather(*(count(db, name) for name in ("a", "b", "cc", "dd")))
                raise Broken
        with opened(url) as found:
            for name in ("a", "b", "cc", "dd"):
                left, right = (
                    found.key(f"{name}-{side}").total.get() for side in ("left", "right")
                )
                assert left == right


async def test_a_change_outside_of_a_step_is_refused(url: str) -> None:
    async with opened_async(url) as db:
        changes: list[Callable[[], object]] = [
            lambda: db.key("a").total.set(1),
            db.key("a").total.delete,
            lambda: db.advance("t", 1),
        ]
        for change in changes:
            with pytest.raises(ConfigError, match="a change of state outside of a step"):
                change()
            with pytest.raises(ConfigError, match="a change of state outside of a step"):
                await asyncio.to_thread(change)

        async def other() -> None:
            db.key("a").total.set(1)

        async with db.step():
            with pytest.raises(ConfigError, match="by the task that has entered it"):
                await asyncio.create_task(other())
            for call in (db.checkpoint, db.savepoint):
                with pytest.raises(ConfigError, match=r"after the step.*with db"):
                    await call()
            with pytest.raises(StateSchemaError, match="bigint"):
                db.key("a").total.set("text")
        assert db.key("a").total.get() is None
        await db.checkpoint()


async def test_a_step_that_breaks_off_ends_the_database_if_it_has_changed_something(
    url: str,
) -> None:
    with pytest.raises(UserFunctionError, match="open the database again"):
        async with opened_async(url) as db:
            with pytest.raises(Broken):
                async with db.step():
                    raise Broken
            async with db.step():
                db.key("a").total.set(1)
            await db.checkpoint()

            async def cancelled() -> None:
                async with db.step():
                    db.key("a").total.set(2)
                    await asyncio.Event().wait()

            task = asyncio.create_task(cancelled())
            while db.key("a").total.get() == 1:
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            with pytest.raises(UserFunctionError, match="CancelledError"):
                db.key("a").total.get()
            with pytest.raises(UserFunctionError, match="open the database again"):
                async with db.step():
                    raise AssertionError("it has ended")
    with opened(url) as db:
        assert db.key("a").total.get() == 1


async def test_the_event_loop_goes_on_while_a_step_waits_for_room(url: str) -> None:
    """Memory is full and a checkpoint is under way again and again; others have their turns."""
    config = JobConfig(memory=48 << 20, checkpoint=CheckpointConfig(interval=0.1))
    turns = written = 0

    async def ticking() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with opened_async(url, config, blob=ValueState(bytes)) as db:
        ticker = asyncio.create_task(ticking())
        waited = 0
        while written < 1000 or not waited:  # until one was awaited while others went on
            before = turns
            async with db.step():
                waited += turns - before > 1
                db.key(written).blob.set(written.to_bytes(8, "big") * 2500)
                written += 1
                db.advance("t", written)
        ticker.cancel()
    with opened(url, config, blob=ValueState(bytes)) as db:
        assert db.position == {"t": written}
        for number in range(0, written, 97):
            assert db.key(number).blob.get() == number.to_bytes(8, "big") * 2500
