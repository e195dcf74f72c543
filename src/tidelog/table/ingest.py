"""Bulk ingestion: large sorted batches become SST files without passing a memtable.

Invariant: all files of one call enter the database in one step, so the call is as atomic as a
write batch, and its rows are newer than everything written before.
"""

from collections.abc import Sequence
from pathlib import Path

from rocksdict import IngestExternalFileOptions, Options, Rdict, SstFileWriter

_ROWS_BETWEEN_SIZE_CHECKS = 8192


def write_files(
    options: Options,
    directory: Path,
    *,
    keys: Sequence[bytes],
    values: Sequence[bytes | None],
    target_file_bytes: int,
) -> list[Path]:
    """Write sorted, distinct rows to SST files under `directory`."""
    directory.mkdir(parents=True, exist_ok=True)
    paths: list[Path] = []
    start = 0
    while start < len(keys):
        paths.append(directory / f"{start}.sst")
        writer = SstFileWriter(options)
        writer.open(str(paths[-1]))
        while start < len(keys) and writer.file_size() < target_file_bytes:
            end = start + _ROWS_BETWEEN_SIZE_CHECKS
            _append(writer, keys[start:end], values[start:end])
            start = end
        writer.finish()
    return paths


def ingest_files(db: Rdict, files: Sequence[Path]) -> None:
    """Move the files of `write_files` into `db`."""
    how = IngestExternalFileOptions()
    how.set_move_files(True)
    db.ingest_external_file(list(map(str, files)), how)


def _append(writer: SstFileWriter, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
    for key, value in zip(keys, values, strict=True):
        if value is None:
            del writer[key]
        else:
            writer[key] = value
