"""The files of stored tables: fetched, checked and laid out.

Invariants: every byte is checked before a table is opened from it; with a staging directory an
object that several tables need is fetched once and linked, for files of a table never change.
"""

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tidelog.checkpoint.manifest import (
    Descriptor,
    MaterializationRef,
    TableObject,
    decode_descriptor,
)
from tidelog.checkpoint.table_file import check_table_file
from tidelog.concurrency import SharedTasks, gather_bounded
from tidelog.effects import Effects
from tidelog.errors import CorruptObjectError, ObjectNotFoundError, RestoreError
from tidelog.state.restore.progress import RestoreProgress
from tidelog.storage.port import ObjectStore
from tidelog.table.failures import translate
from tidelog.table.port import Table, TableFactory

OLDER: Final = "restore an older slot (`tidelog checkpoints list URL` shows them)"


@dataclass(slots=True)
class TableFiles:
    """Fetches descriptors and table files, at most as many at a time as there are permits."""

    store: ObjectStore
    effects: Effects
    progress: RestoreProgress
    permits: asyncio.Semaphore
    staging: Path | None = None
    """Where files lie that several tables need; None: each table fetches its own."""
    _staged: dict[str, "asyncio.Task[Path]"] = field(default_factory=dict)
    _fetches: SharedTasks = field(default_factory=SharedTasks)

    async def close(self) -> None:
        """Cancel the fetches that are under way."""
        await self._fetches.close()

    async def descriptor(self, ref: MaterializationRef, what: str) -> Descriptor:
        """What the materialization of `what` consists of; raises RestoreError when it is gone,
        CorruptObjectError when it is not what the manifest says.
        """
        with self.progress.timings.download:
            data = await self._get(ref.descriptor, f"the materialization of {what}")
        descriptor = decode_descriptor(data, ref.descriptor)
        if descriptor.upto != ref.upto:
            raise CorruptObjectError(
                f"object {ref.descriptor}",
                expected=f"a snapshot of the changes below {ref.upto}",
                found=f"below {descriptor.upto}",
                action=OLDER,
            )
        return descriptor

    async def open(self, descriptor: Descriptor, factory: TableFactory, directory: Path) -> Table:
        """The table as it was materialized, its files under `directory`."""
        run, timings = self.effects.offload.run, self.progress.timings
        with timings.download:
            await run(_lay_out, descriptor.private, directory)
            await gather_bounded(
                descriptor.shared, lambda file: self._place(file, directory / file.name)
            )
        with timings.open:
            return await run(factory.restore, directory)

    async def _place(self, file: TableObject, path: Path) -> None:
        if self.staging is None:
            await self._download(file, path)
            return
        fetching = self._staged.get(file.object)
        if fetching is None:
            staged = self.staging / str(len(self._staged))
            fetching = self._fetches.start(self._stage(file, staged))
            self._staged[file.object] = fetching
        await self.effects.offload.run(_link, await self._fetches.wait(fetching), path)

    async def _stage(self, file: TableObject, path: Path) -> Path:
        await self.effects.offload.run_to_end(_make, path.parent)
        await self._download(file, path)
        return path

    async def _download(self, file: TableObject, path: Path) -> None:
        async with self.permits:
            data = await self._get(file.object, "a table file", file.size)
            # To its end: its thread would write behind the back of who removes the directory.
            await self.effects.offload.run_to_end(_check_and_write, file, data, path)
            self.progress.fetched(len(data))

    async def _get(self, name: str, what: str, length: int | None = None) -> bytes:
        try:
            return await self.store.get(name, 0, length)
        except ObjectNotFoundError as cause:
            raise RestoreError(
                f"object {name}",
                expected=f"{what}, as the checkpoint names it",
                found="no such object",
                action=f"{OLDER}, and find out what else deletes objects under this URL",
            ) from cause


def _lay_out(private: Mapping[str, bytes], directory: Path) -> None:
    try:
        directory.mkdir(parents=True)
    except OSError as error:
        raise translate(error, directory) from error
    for name, data in private.items():
        _write(directory / name, data)


def _make(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise translate(error, directory) from error


def _link(staged: Path, path: Path) -> None:
    try:
        os.link(staged, path)
    except OSError as error:
        raise translate(error, path.parent) from error


def _check_and_write(file: TableObject, data: bytes, path: Path) -> None:
    check_table_file(file, data, OLDER)
    _write(path, data)


def _write(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise translate(error, path.parent) from error
