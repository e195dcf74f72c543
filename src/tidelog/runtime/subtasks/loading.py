"""Loads the stored state of subtasks that go on."""

import asyncio
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from tidelog.checkpoint.manifest import SubtaskState
from tidelog.concurrency import together
from tidelog.effects import Effects
from tidelog.ids import SubtaskId
from tidelog.runtime.config import JobConfig
from tidelog.runtime.subtasks.vertices import Vertex
from tidelog.state.restore.progress import RestoreProgress
from tidelog.state.restore.restorer import RestoredSubtask, Restorer, expect, shared_log
from tidelog.storage.port import ObjectStore
from tidelog.table.port import TableFactory


async def load(
    states: Mapping[SubtaskId, SubtaskState],
    vertices: Iterable[Vertex],
    *,
    store: ObjectStore,
    effects: Effects,
    config: JobConfig,
    progress: RestoreProgress,
    directory: Path,
    factory: Callable[[Vertex], TableFactory],
) -> dict[SubtaskId, RestoredSubtask]:
    """Restore these subtasks in parallel; when one fails none stays open."""
    log = shared_log(store, effects, progress, config.restore.shared_by(1, config.memory))
    for state in states.values():
        expect(log, state)
    restorers = {
        vertex.id: Restorer(
            store,
            effects,
            factory(vertex),
            progress,
            config.restore.shared_by(len(states), config.memory),
            directory / f"{vertex.id}-staging",
            log,
        )
        for vertex in vertices
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
    for vertex in vertices:
        await effects.offload.run(shutil.rmtree, directory / f"{vertex.id}-staging", True)
    return dict(zip(loading, restored, strict=True))


async def _discard(loading: Iterable[asyncio.Task[RestoredSubtask]]) -> None:
    """Cancel these restores, and close the tables of those that had ended."""
    for restoring in loading:
        restoring.cancel()
    for ended in await asyncio.gather(*loading, return_exceptions=True):
        if isinstance(ended, RestoredSubtask):
            ended.table.close()
