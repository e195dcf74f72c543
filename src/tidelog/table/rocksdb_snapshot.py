"""The files of a RocksDB snapshot.

Invariant: a snapshot is the live SST files (hard links, shared, immutable) and one small SNAPSHOT
file, which packs RocksDB's own CURRENT and MANIFEST with the sizes of the SST files under a CRC.
RocksDB by itself opens a MANIFEST with a torn last record without complaint, as if that record had
never been written.
"""

import re
from pathlib import Path

from tidelog.table.failures import corrupt, failures
from tidelog.table.frame import Row, encode_rows, read_rows
from tidelog.table.port import TableFile

SNAPSHOT_NAME = "SNAPSHOT"

_SST_SUFFIX = ".sst"
_NAME = re.compile(rb"CURRENT|MANIFEST-\d+|\d+\.sst")


def pack(directory: Path) -> list[TableFile]:
    """Turn RocksDB's checkpoint directory into SST files and one SNAPSHOT file."""
    with failures(directory):
        files: list[TableFile] = []
        rows: list[Row] = []
        for path in sorted(directory.iterdir()):
            if path.suffix == _SST_SUFFIX:
                size = path.stat().st_size
                files.append(TableFile(path.name, path, size, shared=True))
                rows.append((path.name.encode(), str(size).encode()))
                continue
            if path.name == "CURRENT" or path.name.startswith("MANIFEST-"):
                rows.append((path.name.encode(), path.read_bytes()))
            # The rest (options, empty logs) is written anew when the table opens.
            path.unlink()
        snapshot = directory / SNAPSHOT_NAME
        size = snapshot.write_bytes(encode_rows(rows))
        return [*files, TableFile(SNAPSHOT_NAME, snapshot, size, shared=False)]


def unpack(directory: Path) -> None:
    """Undo `pack`; raises CorruptObjectError when a file is missing or has another size."""
    snapshot = directory / SNAPSHOT_NAME
    for name, content in read_rows(snapshot):
        if not _NAME.fullmatch(name):
            # A name with directories in it would be written wherever it points to.
            raise corrupt(snapshot, "names of RocksDB's files", repr(name))
        path = directory / name.decode()
        if path.suffix != _SST_SUFFIX:
            path.write_bytes(content)
            continue
        found = path.stat().st_size if path.exists() else None
        if str(found).encode() != content:
            raise corrupt(
                path,
                f"{content.decode(errors='replace')} bytes",
                "no such file" if found is None else f"{found} bytes",
            )
    snapshot.unlink()
