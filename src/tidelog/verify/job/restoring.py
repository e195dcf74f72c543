"""A partition's table built as a restore builds it, to be read once and thrown away.

Invariants: memory is bounded whatever the size of the state; the table is closed and its files are
gone when the block ends; an error about a file of the table names the object it came from.
"""

import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidelog.checkpoint.manifest import SubtaskState
from tidelog.errors import CorruptObjectError, InvariantError, TidelogError
from tidelog.state.config import RestoreConfig
from tidelog.state.restore.progress import RestoreProgress
from tidelog.state.restore.restorer import Restorer
from tidelog.table.kinds import reading_factory
from tidelog.table.port import Table
from tidelog.verify.unit import Workspace

_MIB: Final = 1 << 20
BOUNDS: Final = RestoreConfig(4, read_ahead_bytes=32 * _MIB, replay_bytes=64 * _MIB)
"""Several partitions are restored side by side."""


@dataclass(frozen=True, slots=True)
class Restoring:
    """Restores states of one partition; `what` names it in messages."""

    workspace: Workspace
    what: str
    restorer: Restorer

    @classmethod
    def of(cls, workspace: Workspace, what: str, kind: str, *, staged: bool) -> "Restoring":
        """For tables of a kind. `staged`: a file that several states need is fetched once, and kept
        until `close`. Raises RestoreError for a kind this release does not know.
        """
        store, effects = workspace.store, workspace.effects
        progress = RestoreProgress.of(effects.clock, ())
        staging = workspace.directory / "staged" if staged else None
        factory = reading_factory(kind, what)
        restorer = Restorer(store, effects, factory, progress, BOUNDS, staging)
        return cls(workspace, what, restorer)

    async def close(self) -> None:
        """Cancel the fetches that are under way, and remove what is staged."""
        await self.restorer.close()
        if self.restorer.staging is not None:
            await self.workspace.effects.offload.run(shutil.rmtree, self.restorer.staging, True)

    @asynccontextmanager
    async def table(self, state: SubtaskState, files: Mapping[str, str]) -> AsyncIterator[Table]:
        """The table of a state.

        `files` are the objects that hold the files of the materialization, by the files' names.
        Raises what `Restorer.restore` raises, and damage found while the table is read as
        CorruptObjectError.
        """
        run = self.workspace.effects.offload.run
        directory = self.workspace.directory / "table"
        try:
            restored = await self.restorer.restore(state, directory, self.what)
            try:
                yield restored.table
            finally:
                await run(restored.table.close)
        except (CorruptObjectError, InvariantError) as error:
            if str(directory) not in f"{error.what} {error.found}":
                raise
            raise _damaged_table(error, state, files) from error
        finally:
            await run(shutil.rmtree, directory, True)


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
