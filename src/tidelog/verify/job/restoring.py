"""A partition's table built as a restore builds it, to be read once and thrown away.

Invariants: memory is bounded whatever the size of the state; the table is closed and its files are
gone when the block ends; an error about a file of the table names the object it came from.
"""

import asyncio
import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidelog.checkpoint.manifest import SubtaskState
from tidelog.errors import CorruptObjectError, InvariantError, TidelogError
from tidelog.state.restore.base_table import BaseTable
from tidelog.state.restore.log_replay import LogReplay
from tidelog.state.restore.progress import RestoreProgress
from tidelog.state.restore.restorer import RestoreConfig, Restorer, shared_log
from tidelog.table.kinds import reading_factory
from tidelog.table.port import Table
from tidelog.verify.unit import Workspace

_MIB: Final = 1 << 20
_CONFIG: Final = RestoreConfig(4, read_ahead_bytes=32 * _MIB, replay_bytes=64 * _MIB)
"""Several partitions are restored side by side."""


@dataclass(frozen=True, slots=True)
class Restoring:
    """Restores states of one partition; `what` names it in messages."""

    workspace: Workspace
    what: str

    @asynccontextmanager
    async def table(
        self,
        state: SubtaskState,
        files: Mapping[str, str],
        then: SubtaskState | None = None,
    ) -> AsyncIterator[Table]:
        """The table of a state; with `then` the log of that one is replayed on top.

        `files` are the objects that hold the files of the materialization, by the files' names.
        Raises what `Restorer.restore` and `LogReplay.run` raise, and damage found while the
        table is read as CorruptObjectError.
        """
        store, effects = self.workspace.store, self.workspace.effects
        run = effects.offload.run
        directory = self.workspace.directory / "table"
        progress = RestoreProgress.of(effects.clock, [state])
        factory = reading_factory(state.table, f"subtask {state.index}")
        restorer = Restorer(store, effects, factory, progress, _CONFIG)
        try:
            restored = await restorer.restore(state, directory, self.what)
            try:
                if then is not None:
                    await self._replay(restored.table, then, progress)
                yield restored.table
            finally:
                await run(restored.table.close)
        except (CorruptObjectError, InvariantError) as error:
            if str(directory) not in f"{error.what} {error.found}":
                raise
            raise _damaged_table(error, state, files) from error
        finally:
            await run(shutil.rmtree, directory, True)

    async def _replay(self, table: Table, state: SubtaskState, progress: RestoreProgress) -> None:
        opened: asyncio.Future[BaseTable] = asyncio.get_running_loop().create_future()
        opened.set_result(BaseTable(table))
        log = shared_log(self.workspace.store, self.workspace.effects, progress, _CONFIG)
        inline = [log.inline(data, f"inline log of {self.what}") for data in state.inline]
        replay = LogReplay(
            log,
            self.workspace.effects.offload,
            progress,
            state.own,
            self.what,
            _CONFIG.read_ahead_bytes,
            _CONFIG.replay_bytes,
        )
        try:
            await replay.run(inline, opened)
        finally:
            await log.close()


def _damaged_table(
    error: TidelogError, state: SubtaskState, files: Mapping[str, str]
) -> CorruptObjectError:
    """The same error about what is stored: local files mean nothing to anyone."""
    text = f"{error.what} {error.found}"
    named = next((stored for name, stored in files.items() if f"/{name}" in text), None)
    descriptor = state.materialization.descriptor if state.materialization else "no materialization"
    found = (error.found or "another").replace(_folder(text), "")
    return CorruptObjectError(
        f"object {named or descriptor}",
        expected=error.expected or "files that form a table",
        found=found,
        action=error.action,
    )


def _folder(text: str) -> str:
    """The local directory that a text names first, with a slash; nothing when it names none."""
    words = [word for word in text.split() if "/" in word]
    return f"{Path(words[0]).parent}/" if words else ""
