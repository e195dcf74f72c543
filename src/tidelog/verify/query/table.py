"""The tables of a Spark state store: snapshots opened as RocksDB databases, and the one table that
follows the changelogs.

Invariants: the zip file of a snapshot and every SST file it names were checked as far as checksums
go; whatever is opened has a directory of its own, which is gone once it is closed; as soon as the
content cannot be followed, no table is kept any more; the fingerprint of a table always is that of
its rows.
"""

import io
import shutil
import zipfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Final

import msgspec

from tidelog.checkpoint.finding import UNREADABLE
from tidelog.effects import Offload
from tidelog.engines import Workspace
from tidelog.errors import CorruptObjectError, InvariantError, TidelogError
from tidelog.spark.checkpoint.loading import Version
from tidelog.spark.format.changelog import Changelog, Record, RecordKind
from tidelog.spark.format.damage import damaged
from tidelog.table.failures import translate
from tidelog.table.port import Table
from tidelog.table.rocksdb import RocksTable, pack
from tidelog.table.rocksdb_factory import RocksTableFactory
from tidelog.table.rocksdb_options import RocksDBConfig
from tidelog.verify.fingerprint import Fingerprint, fingerprint, of_columns, present
from tidelog.verify.query.files import CheckedFiles, missing
from tidelog.verify.results import object_in

_MIB: Final = 1 << 20
_OPTIONS: Final = RocksDBConfig(block_cache_bytes=16 * _MIB, write_buffers_bytes=64 * _MIB)
"""Several tables are open side by side, and each is read once from front to end."""


def rocks_factory() -> RocksTableFactory:
    """Tables with little memory."""
    return RocksTableFactory(_OPTIONS)


_METADATA: Final = "metadata"
_MERGE: Final = "merge_operator"


class _SstFile(msgspec.Struct, rename="camel"):
    local_file_name: str
    dfs_sst_file_name: str
    size_bytes: int


class _Metadata(msgspec.Struct, rename="camel"):
    sst_files: tuple[_SstFile, ...] = ()


async def open_snapshot(
    files: CheckedFiles, offload: Offload, name: str, target: Path
) -> tuple[RocksTable, Fingerprint | None]:
    """The database of the snapshot `name`, a zip file, laid out under `target`, and the fingerprint
    of its rows: None when it holds merges, which only Spark can read.

    Raises RestoreError when a file is missing, CorruptObjectError for damage.
    """
    members, ssts = await offload.run(unzipped, await files.read(name), name)
    await offload.run(_lay_out, target, members)
    objects = {}
    for sst in ssts:
        local = _plain(sst.local_file_name, name)
        objects[local] = f"{name.rpartition('/')[0]}/SSTs/{sst.dfs_sst_file_name}"
        content = await _sst(files, objects[local], sst.size_bytes)
        await offload.run(_write, target / local, content)
    table = await offload.run(_read, target, name, objects)
    # RocksDB has checked every block, as all rows were read.
    files.coverage.update(dict.fromkeys(objects.values(), True))
    return table


async def _sst(files: CheckedFiles, object_name: str, size: int) -> bytes:
    if object_name not in files.listed:
        raise missing(object_name)
    content = await files.read(object_name)
    if len(content) != size:
        raise damaged(f"object {object_name}", f"{size} bytes", f"{len(content)}")
    return content


def unzipped(data: bytes, name: str) -> tuple[dict[str, bytes], tuple[_SstFile, ...]]:
    """The files in a snapshot's zip file, and the SST files its metadata names."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = {_plain(member, name): archive.read(member) for member in archive.namelist()}
        version, _, body = members.pop(_METADATA).partition(b"\n")
        if version.strip() != b"v1":
            raise damaged(f"object {name}", "metadata of version v1", repr(version[:20]))
        return members, msgspec.json.decode(body, type=_Metadata).sst_files
    except CorruptObjectError:
        raise
    except KeyError as cause:
        raise damaged(f"object {name}", f"a file {_METADATA!r} in it", "none") from cause
    except (zipfile.BadZipFile, msgspec.MsgspecError, UnicodeDecodeError) as cause:
        raise damaged(f"object {name}", "a snapshot of a state store", str(cause)) from cause
    except Exception as cause:  # zipfile raises what zlib and struct raise
        raise damaged(f"object {name}", "a readable zip file", repr(cause)) from cause


def _plain(member: str, name: str) -> str:
    """A name that stays in its directory; raises CorruptObjectError for any other."""
    if PurePosixPath(member).name != member or member in {"", "..", "."}:
        raise damaged(f"object {name}", "names of plain files in it", repr(member))
    return member


def _lay_out(target: Path, members: Mapping[str, bytes]) -> None:
    target.mkdir(parents=True)
    for member, content in members.items():
        _write(target / member, content)


def _write(path: Path, content: bytes) -> None:
    """Write a local file; raises StoreFullError and StorageError."""
    try:
        path.write_bytes(content)
    except OSError as error:
        raise translate(error, path.parent) from error


def _read(
    target: Path, name: str, objects: Mapping[str, str]
) -> tuple[RocksTable, Fingerprint | None]:
    """Open a database and read all of it; errors name the stored object."""
    # Made one of tidelog's own snapshots, it opens like these.
    pack(target)
    table = None
    try:
        table = rocks_factory().restore(target)
        return table, fingerprint(table.scan(b"", None))
    except InvariantError as error:
        if table is not None and _MERGE in f"{error.found}":
            return table, None
        raise
    except CorruptObjectError as error:
        if table is not None:
            table.close()
        text = f"{error.what} {error.found}"
        damaged_object = object_in(text, objects) or name
        actual = (error.found or "another").replace(f"{target}/", "")
        expected = "it and its SST files to form a database"
        raise damaged(f"object {damaged_object}", expected, actual) from error


_BATCH: Final = 10_000


class MergesError(Exception):
    """A record appends to a value in a way that only Spark's merge operator knows."""


@dataclass(slots=True)
class ChangingTable:
    """A table under `directory`, and the fingerprint of its rows."""

    table: Table
    directory: Path
    fingerprint: Fingerprint

    def close(self) -> None:
        self.table.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def apply(self, records: Iterable[Record]) -> None:
        """Apply a changelog; raises MergesError, after which the table is of no use."""
        newest: dict[bytes, bytes | None] = {}
        for record in records:
            match record.kind:
                case RecordKind.MERGE:
                    raise MergesError
                case RecordKind.DELETE_RANGE:
                    self._write(newest)
                    rows = self.table.scan(record.key, record.value or b"")
                    newest = dict.fromkeys(key for key, _ in rows)
                case _:
                    newest[record.key] = record.value
            if len(newest) >= _BATCH:
                self._write(newest)
                newest = {}
        self._write(newest)

    def _write(self, newest: dict[bytes, bytes | None]) -> None:
        if not newest:
            return
        keys = sorted(newest)
        values = [*map(newest.__getitem__, keys)]
        old = of_columns(*present(keys, self.table.get_many(keys)))
        self.fingerprint += of_columns(*present(keys, values)) - old
        self.table.write(keys, values)


MERGES: Final = "it appends to values, which only Spark can follow"


@dataclass(slots=True)
class FollowedTable:
    """What the changelogs have made; `objects` are the snapshots by version."""

    workspace: Workspace
    files: CheckedFiles
    objects: Mapping[Version, str]
    unfollowable: str | None
    """Why only Spark can say what the changelogs make."""
    snapshot_errors: dict[Version, TidelogError | None] = field(default_factory=dict)
    """What is wrong with the snapshots that were opened; None: nothing."""
    table: ChangingTable | None = None
    """The rows; None while they are not known."""
    _directories: int = 0

    @property
    def fingerprint(self) -> Fingerprint | None:
        """The fingerprint of the rows of the table; None while there is none."""
        return self.table.fingerprint if self.table is not None else None

    async def open(self, version: Version | None) -> ChangingTable:
        """The table of a snapshot, or an empty one for None; raises as `open_snapshot`."""
        self._directories += 1
        directory = self.workspace.directory / str(self._directories)
        offload = self.workspace.effects.offload
        if version is None:
            empty = await offload.run(rocks_factory().create, directory)
            return ChangingTable(empty, directory, Fingerprint())
        try:
            table, rows = await open_snapshot(self.files, offload, self.objects[version], directory)
        except UNREADABLE as error:
            self.snapshot_errors[version] = error
            raise
        self.snapshot_errors[version] = None
        if rows is None:
            await self.stop_following(MERGES)
        return ChangingTable(table, directory, rows or Fingerprint())

    async def try_out(self, version: Version) -> None:
        """Open the snapshot of a version, or note what is wrong with it."""
        with suppress(*UNREADABLE):
            await self.discard(await self.open(version))

    async def follow(self, table: ChangingTable) -> None:
        """Go on with this table instead."""
        await self.close()
        if self.unfollowable is None:
            self.table = table
        else:
            await self.discard(table)

    async def apply(self, changelog: Changelog) -> None:
        if self.table is None:
            return
        try:
            await self.workspace.effects.offload.run(self.table.apply, changelog.records)
        except MergesError:
            await self.stop_following(MERGES)

    async def stop_following(self, why: str) -> None:
        """From here on the content is not known."""
        self.unfollowable = self.unfollowable or why
        await self.close()

    async def close(self) -> None:
        if self.table is not None:
            table, self.table = self.table, None
            await self.discard(table)

    async def discard(self, table: ChangingTable) -> None:
        """Close a table that is not followed, and remove its files."""
        await self.workspace.effects.offload.run(table.close)
