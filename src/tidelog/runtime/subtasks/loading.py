"""Loads the stored state of subtasks that go on."""

import asyncio
import shutil
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from tidelog.checkpoint.manifest import SubtaskState
from tidelog.concurrency import together
from tidelog.ids import SubtaskId
from tidelog.state.restore.restorer import RestoredSubtask, Restorer, expect, shared_log

if TYPE_CHECKING:
    from tidelog.runtime.subtasks.state import SubtaskStates


async def load(
    owner: "SubtaskStates", states: Mapping[SubtaskId, SubtaskState]
) -> dict[SubtaskId, RestoredSubtask]:
    """Restore these subtasks in parallel; when one fails none stays open."""
    plan, config, progress, directory = owner.plan, owner.config, owner.progress, owner.directory
    store, memory = plan.resumption.origin or owner.store, config.memory
    whole_budget = config.restore.shared_by(1, memory)
    log = shared_log(store, owner.effects, progress, whole_budget)
    for state in states.values():
        expect(log, state)
    restorers = {
        vertex.id: Restorer(
            store,
            owner.effects,
            owner.factory(vertex),
            progress,
            config.restore.shared_by(len(states), memory),
            directory / f"{vertex.id}-staging",
            log,
        )
        for vertex in plan.vertices
    }
    loading = {
        task: asyncio.ensure_future(
            restorers[task.operator].restore(state, directory / str(task), str(task))
        )
        for task, state in states.items()
    }
    try:
        restored = await asyncio.gather(*loading.values())
    except BaseException:
        await _discard(loading.values())
        raise
    finally:
        await together([log.close(), *(each.close() for each in restorers.values())])
    for vertex in plan.vertices:
        await owner.effects.offload.run(shutil.rmtree, directory / f"{vertex.id}-staging", True)
    return dict(zip(loading, restored, strict=True))


async def _discard(loading: Iterable[asyncio.Task[RestoredSubtask]]) -> None:
    """Cancel these restores, and close the tables of those that had ended."""
    for restoring in loading:
        restoring.cancel()
    for ended in await asyncio.gather(*loading, return_exceptions=True):
        if isinstance(ended, RestoredSubtask):
            ended.table.close()
