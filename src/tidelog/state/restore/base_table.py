"""The table under a subtask's log: its own materialization, or those it inherited, put together.

Invariants: the table holds rows of the subtask's key groups alone, each from the one
materialization that covers it. The largest one of the table's own kind is opened as it is and
clipped, so its stored files serve on; the rows of the others are copied.
"""

import asyncio
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Final

from tidelog.checkpoint.manifest import Descriptor, InheritedState, SubtaskState, TableObject
from tidelog.errors import RestoreError
from tidelog.state.restore.table_files import TableFiles
from tidelog.table.kinds import reading_factory
from tidelog.table.port import Table, TableFactory

_COPY_ROWS: Final = 1 << 16
"""Rows copied at a time: enough for a table to ingest them as a file."""


@dataclass(frozen=True, slots=True)
class BaseTable:
    """An open table and what it was made from."""

    table: Table
    known: Mapping[str, TableObject] = field(default_factory=dict)
    """Stored files of the table, by local name."""
    descriptors: Mapping[str, Descriptor] = field(default_factory=dict)
    """All materializations that the table was made from, by object name."""


async def open_base_table(
    state: SubtaskState, files: TableFiles, factory: TableFactory, directory: Path, what: str
) -> BaseTable:
    """Open the table of `state` before any log, under `directory` or beside it.

    Raises RestoreError, CorruptObjectError, FormatVersionError and what the store raises.
    """
    layers = [layer for layer in state.layers if layer.materialization is not None]
    if not layers:
        return BaseTable(factory.create(directory))
    found = await asyncio.gather(*(_described(layer, files, what) for layer in layers))
    descriptors = {
        layer.materialization.descriptor: descriptor
        for layer, descriptor in zip(layers, found, strict=True)
        if layer.materialization is not None
    }
    parts = [_Part(*part) for part in zip(layers, found, strict=True)]
    if not state.inherited:
        descriptor = _of_kind(parts[0].descriptor, factory, what)
        table = await files.open(descriptor, factory, directory)
        return BaseTable(table, parts[0].known, descriptors)
    return await _Builder(files, factory, directory, what).build(parts, descriptors)


async def _described(layer: InheritedState, files: TableFiles, what: str) -> Descriptor:
    assert layer.materialization is not None
    return await files.descriptor(layer.materialization, what)


def _of_kind(descriptor: Descriptor, factory: TableFactory, what: str) -> Descriptor:
    if descriptor.table != factory.kind:
        raise RestoreError(
            f"the table of {what}",
            expected=f"kind {factory.kind!r}",
            found=f"kind {descriptor.table!r}",
            action=f"run the job with --table {descriptor.table}",
        )
    return descriptor


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
    def known(self) -> dict[str, TableObject]:
        return {file.name: file for file in self.descriptor.shared}


@dataclass(frozen=True, slots=True)
class _Builder:
    files: TableFiles
    factory: TableFactory
    directory: Path
    what: str

    async def build(
        self, parts: Sequence[_Part], descriptors: Mapping[str, Descriptor]
    ) -> BaseTable:
        """The table of all parts; when it fails none stays open."""
        same = [part for part in parts if part.descriptor.table == self.factory.kind]
        base = max(same, key=lambda part: part.descriptor.table_bytes, default=None)
        # Every task ends by itself: cancelled, its thread would go on writing behind our back.
        others = [part for part in parts if part is not base]
        opening = [asyncio.ensure_future(self._open(*each)) for each in enumerate(others)]
        basing = asyncio.ensure_future(self._base(base))
        try:
            table = await basing
            for part, source in zip(others, opening, strict=True):
                await self._copy(part, await source, table)
        except BaseException:
            for ended in await asyncio.gather(basing, *opening, return_exceptions=True):
                if not isinstance(ended, BaseException):
                    ended.close()
            raise
        finally:
            await self.files.effects.offload.run(self._clean_up, len(others))
        return BaseTable(table, base.known if base is not None else {}, descriptors)

    async def _base(self, base: _Part | None) -> Table:
        if base is None:
            return self.factory.create(self.directory)
        table = await self.files.open(base.descriptor, self.factory, self.directory)
        with self.files.progress.timings.open:
            await self.files.effects.offload.run(table.clip, base.lower, base.upper)
        return table

    async def _open(self, number: int, part: _Part) -> Table:
        factory = reading_factory(part.descriptor.table, self.what)
        return await self.files.open(part.descriptor, factory, self._beside(number))

    async def _copy(self, part: _Part, source: Table, table: Table) -> None:
        run = self.files.effects.offload.run
        with self.files.progress.timings.open:
            await run(_copy_rows, source, table, part.lower, part.upper)
            await run(source.close)

    def _beside(self, number: int) -> Path:
        return self.directory.with_name(f"{self.directory.name}-inherited-{number}")

    def _clean_up(self, others: int) -> None:
        for number in range(others):
            shutil.rmtree(self._beside(number), ignore_errors=True)


def _copy_rows(source: Table, table: Table, lower: bytes, upper: bytes | None) -> None:
    rows = source.scan(lower, upper)
    while chunk := list(islice(rows, _COPY_ROWS)):
        table.load([key for key, _ in chunk], [value for _, value in chunk])
