"""Data files that are written and not in the table yet.

Invariants: a transaction is announced before its first file is written, and its files lie in a
directory of its own; so who lists what is announced knows all files that a crash may have left,
without a look at those that were committed.
"""

import hashlib
import re
from collections.abc import Iterable
from importlib import import_module
from operator import attrgetter
from pathlib import PurePosixPath
from typing import Any, Final

import msgspec

from tidelog.connectors import transactions
from tidelog.connectors.transactions import TransactionId
from tidelog.errors import RestoreError

_NAME: Final = re.compile(r"(\d+)-(.*)-(\d+)-(\d+)")


class StagedFile(msgspec.Struct, frozen=True, array_like=True):
    """A Parquet file, and what a manifest of Iceberg says of it."""

    path: str
    size: int
    records: int
    partition: tuple[bytes | None, ...]
    column_sizes: dict[int, int]
    value_counts: dict[int, int]
    null_value_counts: dict[int, int]
    nan_value_counts: dict[int, int]
    lower_bounds: dict[int, bytes]
    upper_bounds: dict[int, bytes]
    split_offsets: list[int] | None


_STATISTICS: Final = StagedFile.__struct_fields__[4:]
"""Those that files have under the same names in the library."""
_statistics_of: Final = attrgetter(*_STATISTICS)


class Staged(msgspec.Struct, frozen=True, array_like=True, tag="iceberg"):
    """A pre-committed transaction: its files, and the table and partition spec they are for."""

    tx: TransactionId
    table: str
    spec: int
    files: tuple[StagedFile, ...]


def described(file: Any, spec: Any, schema: Any) -> StagedFile:
    """What a transaction keeps of a data file of the library."""
    to_bytes = import_module("pyiceberg.conversions").to_bytes
    partition: list[bytes | None] = []
    for index, field in enumerate(spec.partition_type(schema).fields):
        value = file.partition[index]
        partition.append(None if value is None else to_bytes(field.field_type, value))
    size, records = file.file_size_in_bytes, file.record_count
    return StagedFile(file.file_path, size, records, tuple(partition), *_statistics_of(file))


def data_file(staged: StagedFile, spec: Any, schema: Any) -> Any:
    """The data file of the library again."""
    manifest, typedef = import_module("pyiceberg.manifest"), import_module("pyiceberg.typedef")
    from_bytes = import_module("pyiceberg.conversions").from_bytes
    partition = []
    fields = spec.partition_type(schema).fields
    for field, value in zip(fields, staged.partition, strict=True):
        partition.append(None if value is None else from_bytes(field.field_type, value))
    file = manifest.DataFile.from_args(
        content=manifest.DataFileContent.DATA,
        file_path=staged.path,
        file_format=manifest.FileFormat.PARQUET,
        partition=typedef.Record(*partition),
        file_size_in_bytes=staged.size,
        sort_order_id=None,
        equality_ids=None,
        key_metadata=None,
        record_count=staged.records,
        **dict(zip(_STATISTICS, _statistics_of(staged), strict=True)),
    )
    file.spec_id = spec.spec_id
    return file


class SinkDirectory:
    """Where a sink's files lie: below `tidelog-…` in the table, by the sink's earlier name."""

    def __init__(self, sink: str, table: Any) -> None:
        self._sink = sink
        provider = table.location_provider()
        self._data, self._metadata = provider.data_path, provider.metadata_path
        self.credentials = dict(table.io.properties)
        """How the table's files are reached."""
        self._io = import_module("pyiceberg.io.pyarrow").PyArrowFileIO(self.credentials)

    def data(self, tx: TransactionId) -> str:
        return f"{self._data}/{_folder(tx.sink)}/{name_of(tx)}"

    def announce(self, tx: TransactionId) -> None:
        """Say that there will be files of a transaction."""
        system, path = self._at(f"{self._metadata}/{_folder(self._sink)}")
        system.create_dir(path, recursive=True)
        with system.open_output_stream(f"{path}/{name_of(tx)}") as file:
            file.write(self._sink.encode())

    def announced(self) -> list[TransactionId]:
        """The transactions that may have files which are not in the table."""
        system, path = self._at(f"{self._metadata}/{_folder(self._sink)}")
        selector = import_module("pyarrow.fs").FileSelector(path, allow_not_found=True)
        files = system.get_file_info(selector)
        return [tx for file in files if (tx := self._parsed(file.base_name)) is not None]

    def settled(self, tx: TransactionId) -> None:
        """The files of a transaction are in the table, or gone."""
        system, path = self._at(f"{self._metadata}/{_folder(tx.sink)}/{name_of(tx)}")
        if _exists(system, path):
            system.delete_file(path)

    def remove(self, tx: TransactionId) -> None:
        """Delete the files of a transaction that is not in the table."""
        system, path = self._at(self.data(tx))
        if _exists(system, path):
            system.delete_dir(path)
        self.settled(tx)

    def size(self, file: StagedFile) -> int | None:
        """The size that a file has now, None for one that is not there."""
        system, path = self._at(file.path)
        size: int | None = system.get_file_info([path])[0].size
        return size

    def schema(self, file: StagedFile, version: int) -> Any:
        """The columns of a file, as a schema of this version of Iceberg's format."""
        system, path = self._at(file.path)
        with system.open_input_file(path) as data:
            columns = import_module("pyarrow.parquet").read_schema(data)
        to_schema = import_module("pyiceberg.io.pyarrow").pyarrow_to_schema
        return to_schema(columns, format_version=version)

    def decode(self, transaction: bytes) -> Staged:
        """Raises RestoreError for a transaction that no sink of this kind wrote for this table."""
        staged = transactions.decode(self._sink, Staged, transaction)
        directory = self.data(staged.tx) + "/"
        odd = [file.path for file in staged.files if not _is_below(file.path, directory)]
        if "/" in name_of(staged.tx) or odd:
            raise RestoreError(
                f"a transaction of sink {self._sink!r}",
                expected=f"files of sink {staged.tx.sink!r} in {self._data}",
                found=f"{odd or staged.tx}",
                action="bring back the table and its location as they were; to write to another "
                f"table, {transactions.CLONE}",
            )
        return staged

    def _parsed(self, name: str) -> TransactionId | None:
        match = _NAME.fullmatch(name)
        if match is None:
            return None
        generation, attempt, subtask, checkpoint = match.groups()
        return TransactionId(self._sink, int(subtask), int(generation), attempt, int(checkpoint))

    def _at(self, location: str) -> tuple[Any, str]:
        scheme, netloc, path = self._io.parse_location(location, self._io.properties)
        return self._io.fs_by_scheme(scheme, netloc), path


def ids(encoded: Iterable[bytes]) -> set[TransactionId]:
    """The transactions among those that checkpoints keep which this kind of sink wrote."""
    return {staged.tx for staged in transactions.those_of(Staged, encoded)}


def _folder(sink: str) -> str:
    return f"tidelog-{hashlib.sha256(sink.encode()).hexdigest()[:16]}"


def name_of(tx: TransactionId) -> str:
    """The name of a transaction in paths and summaries."""
    return f"{tx.generation}-{tx.attempt}-{tx.subtask}-{tx.checkpoint}"


def _exists(system: Any, path: str) -> bool:
    [info] = system.get_file_info([path])
    return bool(info.type != import_module("pyarrow.fs").FileType.NotFound)


def _is_below(path: str, directory: str) -> bool:
    return path.startswith(directory) and ".." not in PurePosixPath(path).parts
