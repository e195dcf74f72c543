"""The table under a subtask's log: its own materialization, or those it inherited, put together.

Invariants: every byte is checked before a table is opened from it; with a staging directory an
object that several tables need is fetched once and linked, for files of a table never change. The
table holds rows of the subtask's key groups alone, each from the one materialization that covers
it: the largest one of the table's own kind is opened as it is and clipped, so its stored files
serve on; the rows of the others are copied.
"""

import asyncio
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidelog.checkpoint.descriptor import Descriptor, TableObject, decode_descriptor
from tidelog.checkpoint.manifest import InheritedState, MaterializationRef, SubtaskState
from tidelog.concurrency import SharedTasks, gather_bounded
from tidelog.effects import Effects
from tidelog.errors import OLDER_CHECKPOINT, CorruptObjectError, ObjectNotFoundError, RestoreError
from tidelog.state.recovery.progress import RestoreProgress
from tidelog.storage.port import ObjectStore
from tidelog.table.failures import failures
from tidelog.table.memory import MemoryTableFactory
from tidelog.table.port import Table, TableFactory
from tidelog.table.rocksdb_factory import RocksTableFactory
from tidelog.table.rocksdb_options import RocksDBConfig

if TYPE_CHECKING:
    from tidelog.state.recovery.hydration import TableHydration
    from tidelog.state.recovery.serving import Serving

_COPY_ROWS: Final = 1 << 16
"""Rows copied at a time: enough for a table to ingest them as a file."""
_SMALL: Final = RocksDBConfig(block_cache_bytes=32 << 20, write_buffers_bytes=64 << 20)
"""For a table that is scanned once and then deleted; those of a running job get more memory."""


def reading_factory(kind: str, what: str) -> TableFactory:
    """A factory for tables of a kind that are to be read once; `what` names whose table it is.

    Raises RestoreError for a kind this release does not know.
    """
    if kind == "rocksdb":
        return RocksTableFactory(_SMALL)
    if kind == "memory":
        return MemoryTableFactory()
    raise RestoreError(
        f"the table of {what}",
        expected="kind rocksdb or memory",
        found=f"kind {kind!r}",
        action="use the tidelog release that wrote it, or a newer one",
    )


@dataclass(slots=True)
class TableFiles:
    """Fetches descriptors and table files, at most as many at a time as there are permits."""

    store: ObjectStore
    effects: Effects
    progress: RestoreProgress
    permits: asyncio.Semaphore
    staging: Path | None = None
    """Where files lie that several tables need; None: each table fetches its own."""
    descriptors: Mapping[str, Descriptor] = field(default_factory=dict)
    """Descriptors that the caller has read already, by object name; others are fetched."""
    serving: "Serving | None" = None
    """Opens tables before their files are here; None: they are loaded whole first."""
    _staged: dict[str, "asyncio.Task[Path]"] = field(default_factory=dict)
    _fetches: SharedTasks = field(default_factory=SharedTasks)

    async def close(self) -> None:
        """Cancel the fetches that are under way."""
        await self._fetches.close()

    async def descriptor(self, ref: MaterializationRef, what: str) -> Descriptor:
        """What the materialization of `what` consists of; raises RestoreError when it is gone,
        CorruptObjectError when it is not what the manifest says.
        """
        descriptor = self.descriptors.get(ref.descriptor)
        if descriptor is None:
            with self.progress.timings.download:
                data = await self._get(ref.descriptor, f"the materialization of {what}")
            descriptor = decode_descriptor(data, ref.descriptor)
        if descriptor.upto != ref.upto:
            raise CorruptObjectError(
                f"object {ref.descriptor}",
                expected=f"a snapshot of the changes below {ref.upto}",
                found=f"below {descriptor.upto}",
                action=OLDER_CHECKPOINT,
            )
        return descriptor

    async def open(self, descriptor: Descriptor, factory: TableFactory, directory: Path) -> Table:
        """The table as it was materialized, its files under `directory`."""
        run, timings = self.effects.offload.run, self.progress.timings
        with timings.download:
            await run(_write_private, descriptor.private, directory)
            await gather_bounded(
                descriptor.shared, lambda file: self._place(file, directory / file.name)
            )
        with timings.open:
            return await run(factory.restore, directory)

    async def base(
        self, descriptor: Descriptor, factory: TableFactory, directory: Path, state: SubtaskState
    ) -> "BaseTable":
        """As `open`, the table that a subtask goes on with; it may serve before it is whole."""
        if self.serving is None or factory.serve is None:
            return BaseTable(await self.open(descriptor, factory, directory))
        with self.progress.timings.open:
            served = await self.serving.open(descriptor, factory.serve, directory, state)
        return BaseTable(served.table, hydration=served)

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
            # To its end: its thread would write into a directory that is being removed.
            await self.effects.offload.run_to_end(_check_and_write, file, data, path)
            self.progress.bytes += len(data)

    async def _get(self, name: str, what: str, length: int | None = None) -> bytes:
        try:
            return await self.store.get(name, 0, length)
        except ObjectNotFoundError as cause:
            raise RestoreError(
                f"object {name}",
                expected=f"{what}, as the checkpoint names it",
                found="no such object",
                action=f"{OLDER_CHECKPOINT}, and find out what else deletes objects under this URL",
            ) from cause


def _make(directory: Path) -> None:
    with failures(directory):
        directory.mkdir(parents=True, exist_ok=True)


def _write_private(private: Mapping[str, bytes], directory: Path) -> None:
    with failures(directory):
        directory.mkdir(parents=True)
        for name, data in private.items():
            (directory / name).write_bytes(data)


def _link(staged: Path, path: Path) -> None:
    with failures(path.parent):
        os.link(staged, path)


def _check_and_write(file: TableObject, data: bytes, path: Path) -> None:
    file.check(data, OLDER_CHECKPOINT)
    with failures(path.parent):
        path.write_bytes(data)


@dataclass(frozen=True, slots=True)
class BaseTable:
    """An open table and what it was made from."""

    table: Table
    files_by_name: Mapping[str, TableObject] = field(default_factory=dict)
    """Stored files of the table, by local name."""
    descriptors: Mapping[str, Descriptor] = field(default_factory=dict)
    """All materializations that the table was made from, by object name."""
    hydration: "TableHydration | None" = None
    """What of the table is missing; None: it is whole."""


async def open_base_table(
    state: SubtaskState, files: TableFiles, factory: TableFactory, directory: Path, what: str
) -> BaseTable:
    """Open the table of `state` before any log, under `directory` or next to it.

    Raises RestoreError, CorruptObjectError, FormatVersionError and what the store raises.
    """
    refs = state.materializations
    if not refs:
        return BaseTable(factory.create(directory))
    read = await asyncio.gather(*map(partial(files.descriptor, what=what), refs))
    layers = (layer for layer in state.layers if layer.materialization is not None)
    parts = list(map(_Part, layers, read))
    descriptors = {ref.descriptor: part.descriptor for ref, part in zip(refs, parts, strict=True)}
    if state.inherited:
        return await _Merge(files, factory, directory, what, state).build(parts, descriptors)
    (part,) = parts
    if part.descriptor.table != factory.kind:
        raise RestoreError(
            f"the table of {what}",
            expected=f"kind {factory.kind!r}",
            found=f"kind {part.descriptor.table!r}",
            action=f"run the job with --table {part.descriptor.table}",
        )
    base = await files.base(part.descriptor, factory, directory, state)
    return replace(base, files_by_name=part.files_by_name, descriptors=descriptors)


@dataclass(frozen=True, slots=True)
class _Part:
    """A materialization and the key groups of it that count."""

    layer: InheritedState
    descriptor: Descriptor

    @property
    def lower(self) -> bytes:
        return self.layer.first_key_group.to_bytes(2, "big")

    @property
    def upper(self) -> bytes | None:
        end = self.layer.last_key_group + 1
        return end.to_bytes(2, "big") if end <= 0xFFFF else None

    @property
    def files_by_name(self) -> dict[str, TableObject]:
        return {file.name: file for file in self.descriptor.shared}


@dataclass(frozen=True, slots=True)
class _Merge:
    """One table of several materializations."""

    files: TableFiles
    factory: TableFactory
    directory: Path
    what: str
    state: SubtaskState

    async def build(
        self, parts: Sequence[_Part], descriptors: Mapping[str, Descriptor]
    ) -> BaseTable:
        """The table of all parts; when it fails none stays open."""
        same_kind = [part for part in parts if part.descriptor.table == self.factory.kind]
        base = max(same_kind, key=lambda part: part.descriptor.table_bytes, default=None)
        merged_parts: list[_Part] = []
        opening: list[asyncio.Task[Table]] = []
        # Every task ends by itself: cancelled, its thread would go on writing.
        for part in parts:
            if part is not base:
                opening.append(asyncio.ensure_future(self._open(len(opening), part)))
                merged_parts.append(part)
        basing = asyncio.ensure_future(self._base(base))
        try:
            opened = await basing
            for part, source in zip(merged_parts, opening, strict=True):
                await self._copy(part, await source, opened.table)
        except BaseException:
            for outcome in await asyncio.gather(*opening, return_exceptions=True):
                if not isinstance(outcome, BaseException):
                    outcome.close()
            await asyncio.wait([basing])
            if not basing.cancelled() and basing.exception() is None:
                basing.result().table.close()
            raise
        finally:
            await self.files.effects.offload.run(self._remove_inherited, len(merged_parts))
        files_by_name = base.files_by_name if base is not None else {}
        return replace(opened, files_by_name=files_by_name, descriptors=descriptors)

    async def _base(self, base: _Part | None) -> BaseTable:
        if base is None:
            return BaseTable(self.factory.create(self.directory))
        opened = await self.files.base(base.descriptor, self.factory, self.directory, self.state)
        with self.files.progress.timings.open:
            await self.files.effects.offload.run(opened.table.clip, base.lower, base.upper)
        return opened

    async def _open(self, number: int, part: _Part) -> Table:
        factory = reading_factory(part.descriptor.table, self.what)
        return await self.files.open(part.descriptor, factory, self._inherited(number))

    async def _copy(self, part: _Part, source: Table, table: Table) -> None:
        run = self.files.effects.offload.run
        with self.files.progress.timings.open:
            await run(_copy_rows, source, table, part.lower, part.upper)
            await run(source.close)

    def _inherited(self, number: int) -> Path:
        return self.directory.with_name(f"{self.directory.name}-inherited-{number}")

    def _remove_inherited(self, count: int) -> None:
        for number in range(count):
            shutil.rmtree(self._inherited(number), ignore_errors=True)


def _copy_rows(source: Table, table: Table, lower: bytes, upper: bytes | None) -> None:
    rows = source.scan(lower, upper)
    while chunk := dict(islice(rows, _COPY_ROWS)):
        table.load(list(chunk), list(chunk.values()))
