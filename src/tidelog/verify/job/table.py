"""A partition's table built as a restore builds it, read once, and thrown away.

Invariants: memory is bounded whatever the size of the state; the table is closed and its files are
gone when the block ends; an error about a file of the table names the object it came from. What
`ScannedTable` answers is what a scan of all rows would find, violations too; where that cannot be
said from the changed rows alone, or costs more than a scan, all are scanned.
"""

import shutil
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from tidelog.checkpoint.manifest import SubtaskState
from tidelog.engines import Workspace
from tidelog.errors import CorruptObjectError, InvariantError, TidelogError
from tidelog.state.config import RestoreConfig
from tidelog.state.recovery.base_table import reading_factory
from tidelog.state.recovery.progress import RestoreProgress
from tidelog.state.recovery.restorer import Restorer
from tidelog.table.port import Table
from tidelog.verify.fingerprint import AT_ONCE, Row, present
from tidelog.verify.job.rows import RowScan
from tidelog.verify.results import object_in

_MIB: Final = 1 << 20
BOUNDS: Final = RestoreConfig(4, read_ahead_bytes=32 * _MIB, replay_bytes=64 * _MIB)
"""Several partitions are restored side by side."""


class Restoring:
    """Restores states of one partition, in tables of a kind; `what` names it in messages.

    `staged`: a file that several states need is fetched once, and kept until `close`. Raises
    RestoreError for a kind this release does not know.
    """

    def __init__(self, workspace: Workspace, what: str, kind: str, *, staged: bool) -> None:
        self.workspace = workspace
        self.what = what
        self._directory = workspace.directory / "table"
        store, effects = workspace.store, workspace.effects
        progress = RestoreProgress.of(effects.clock, ())
        staging = workspace.directory / "staged" if staged else None
        factory = reading_factory(kind, what)
        self._restorer = Restorer(store, effects, factory, progress, BOUNDS, staging)

    async def close(self) -> None:
        """Cancel the fetches that are under way, and remove what is staged."""
        await self._restorer.close()
        if self._restorer.staging is not None:
            await self.workspace.effects.offload.run(shutil.rmtree, self._restorer.staging, True)

    @asynccontextmanager
    async def table(self, state: SubtaskState, files: Mapping[str, str]) -> AsyncIterator[Table]:
        """The table of a state.

        `files` are the objects that hold the files of the materialization, by the files' names.
        Raises what `Restorer.restore` raises, and damage found while the table is read as
        CorruptObjectError.
        """
        run = self.workspace.effects.offload.run
        try:
            restored = await self._restorer.restore(state, self._directory, self.what)
            try:
                yield restored.table
            finally:
                await run(restored.table.close)
        except (CorruptObjectError, InvariantError) as error:
            if not self.is_of_table(error):
                raise
            raise self._damaged(error, state, files) from error
        finally:
            await run(shutil.rmtree, self._directory, True)

    def is_of_table(self, error: TidelogError) -> bool:
        """Whether an error is about the local files of the open table."""
        return str(self._directory) in f"{error.what} {error.found}"

    def _damaged(
        self, error: TidelogError, state: SubtaskState, files: Mapping[str, str]
    ) -> CorruptObjectError:
        """The same error about what is stored: local files mean nothing to users."""
        tables = [ref.descriptor for ref in state.materializations]  # the inherited ones included
        named = object_in(f"{error.what} {error.found}", files)
        return CorruptObjectError(
            f"object {named or ', '.join(tables) or 'of the log alone'}",
            expected=error.expected or "files that form a table",
            found=(error.found or "another").replace(f"{self._directory}/", ""),
            action=error.action,
        )


_SHARE: Final = 3
"""Reading one row by its key takes about as long as so many in a scan."""

Keys = Sequence[bytes]
Values = Sequence[bytes | None]


@dataclass(slots=True)
class ScannedTable:
    """An open table; `scan` has taken its rows while `scan_is_current`."""

    table: Table
    scan: RowScan
    scan_is_current: bool = False

    def rows(self) -> RowScan:
        if not self.scan_is_current:
            self.scan = self.scan.empty()
            for keys, values in self.table.columns(AT_ONCE):
                self.scan.take_columns(keys, values)
            self.scan_is_current = True
        return self.scan.copy()

    def apply(self, keys: Keys, values: Values) -> None:
        """Write changes in the order of their keys; a value of None deletes."""
        if not keys:
            return
        self.scan_is_current = self.scan_is_current and _SHARE * len(keys) <= self.scan.total.rows
        if self.scan_is_current:
            self._follow(self.scan, keys, values)
            # A violation may be one that was replaced.
            self.scan_is_current = not self.scan.violations
        self.table.load(keys, values)

    def changed(self, keys: Keys, values: Values) -> RowScan:
        """A scan of the rows as they would be after changes, which are not written."""
        scan = self.rows()
        if not keys:
            return scan
        self._follow(scan, keys, values)
        if scan.violations:
            scan = scan.empty()
            scan.take(_merged(self.table.scan(b"", None), keys, values))
        return scan

    def _follow(self, scan: RowScan, keys: Keys, values: Values) -> None:
        for start in range(0, len(keys), AT_ONCE):
            part, news = keys[start : start + AT_ONCE], values[start : start + AT_ONCE]
            scan.remove(*present(part, self.table.get_many(part)))
            scan.take_columns(*present(part, news))


def _merged(rows: Iterator[Row], keys: Keys, values: Values) -> Iterator[Row]:
    """Rows with changes to them, both in the order of keys."""
    changes = zip(keys, values, strict=True)
    key, value = next(changes, (None, None))
    for row in rows:
        while key is not None and key < row[0]:
            if value is not None:
                yield key, value
            key, value = next(changes, (None, None))
        if key != row[0]:
            yield row
    while key is not None:
        if value is not None:
            yield key, value
        key, value = next(changes, (None, None))
