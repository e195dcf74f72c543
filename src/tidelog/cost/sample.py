"""A sample of a job's data: how large its values are, and what log and tables make of them.

Invariant: both are measured: a block of the log is sealed, and a table writes its files.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Final

from tidelog.changelog.block import seal
from tidelog.changelog.change import ROW_PREFIX_BYTES, ChangeBatch
from tidelog.errors import ConfigError, usable_path
from tidelog.ids import SeqNo
from tidelog.runtime.config import DEFAULT_KEY_GROUPS
from tidelog.state.key_groups import encode_key, key_group
from tidelog.table.rocksdb_factory import RocksTableFactory

_STATE: Final = bytes(ROW_PREFIX_BYTES - 2)
_MOST_BYTES: Final = 32 << 20
_LEAST_VALUES: Final = 100
"""Fewer say nothing of how much many of them have in common."""


@dataclass(frozen=True, slots=True)
class Sample:
    value_bytes: int
    """Mean bytes of a value."""
    compression: float
    """Stored over raw bytes of a block of so many changes."""
    table_compression: float
    """Stored over raw bytes of a table's file."""


def read_values(path: Path) -> list[bytes]:
    """The lines of a file, up to 32 MiB of them, each the value of a row; raises ConfigError."""
    with (
        usable_path(f"--sample {path}", expected="a readable file", action="correct the path"),
        path.open("rb") as file,
    ):
        lines = file.read(_MOST_BYTES).splitlines()
    values = [*filter(None, lines)]
    if len(values) < _LEAST_VALUES:
        raise ConfigError(
            f"--sample {path}",
            expected=f"{_LEAST_VALUES} lines or more, each the value of a row",
            found=f"{len(values)} in its first {_MOST_BYTES >> 20} MiB",
            action="give a file with more of them, such as what "
            "`tidelog restore URL --format jsonl` writes",
        )
    return values


def sampled(values: Sequence[bytes], key_bytes: int, rows: float, more_bytes: int = 0) -> Sample:
    """What `rows` changes at a time come to, and a table of all values, with keys of such size;
    `more_bytes` are those of a row that rows have in common, such as the start of a window.
    """
    common, width = bytes(more_bytes), max(key_bytes, len(str(len(values))))
    by_key: dict[bytes, bytes] = {}
    for number, value in enumerate(values):
        by_key[_row_key(common + str(number).zfill(width).encode(), number)] = value
    keys = sorted(by_key)
    values = [*map(by_key.__getitem__, keys)]
    of_block = max(1, min(len(values), round(rows)))
    block_bytes = raw_block_bytes = 0
    for start in range(0, len(values), of_block):
        end = start + of_block
        block = seal(ChangeBatch(SeqNo(0), keys[start:end], values[start:end]))
        block_bytes += block.size
        raw_block_bytes += block.raw_bytes
    raw = sum(map(len, keys)) + sum(map(len, values))
    with TemporaryDirectory(prefix="tidelog-sample-") as directory:
        table = RocksTableFactory().create(Path(directory) / "table")
        try:
            table.write(keys, values)
            table.prepare_snapshot()
            table_bytes = sum(path.stat().st_size for path in Path(directory).rglob("*.sst"))
        finally:
            table.close()
    return Sample(
        round(fmean(map(len, values))), min(1.0, block_bytes / raw_block_bytes), table_bytes / raw
    )


def _row_key(key: bytes, number: int) -> bytes:
    """As rows have it: by key group, so that neighbours have nothing in common."""
    group = key_group(encode_key(number), DEFAULT_KEY_GROUPS)
    return group.to_bytes(2, "big") + _STATE + key
