"""RocksDB's own options file, for settings that have no name in tidelog.

Invariants: what such a file may not change is that a table gives back the rows that were written to
it, that its snapshot is its SST files and its MANIFEST, and that all tables keep one memory limit.
Options that could are refused, and caches, memtables and the MANIFEST's size are set over the file.
Format: RocksDB's wiki, "RocksDB Options File".
"""

import configparser
import shutil
import tempfile
from pathlib import Path
from typing import Final

from rocksdict import Cache, Env, Options

from tidelog.errors import ConfigError

_REFUSED: Final = {
    "compaction_style": ("kCompactionStyleLevel", "kCompactionStyleUniversal"),
    "comparator": ("leveldb.BytewiseComparator",),
    "merge_operator": ("nullptr",),
    "compaction_filter": ("nullptr",),
    "compaction_filter_factory": ("nullptr",),
    "prefix_extractor": ("nullptr",),
    "sst_partitioner_factory": ("nullptr",),
    "enable_blob_files": ("false",),
    "inplace_update_support": ("false",),
    "allow_ingest_behind": ("false",),
    "paranoid_checks": ("true",),
    "force_consistency_checks": ("true",),
    "checksum": ("kCRC32c", "kxxHash", "kxxHash64", "kXXH3"),
    "verify_sst_unique_id_in_manifest": ("true",),
    "db_paths": ("", "{}"),
    "cf_paths": ("", "{}"),
}
"""Options of which only some values are safe."""

_FAMILY: Final = "default"


def read_options_file(path: Path, cache: Cache) -> tuple[Options, Options]:
    """Options of the database, and of the column family with the rows, from a file.

    Raises ConfigError for a file that cannot be read, that RocksDB does not take, or that has an
    option which tables cannot work with.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as cause:
        raise ConfigError(
            f"option rocksdb.options_file {path}",
            expected="a text file that can be read",
            found=str(cause),
            action="correct the path, or leave the option out",
        ) from cause
    _refuse(path, text)
    # RocksDB reads the newest options file of a database's directory.
    with tempfile.TemporaryDirectory(prefix="tidelog-options-") as directory:
        shutil.copyfile(path, Path(directory) / "OPTIONS-000001")
        try:
            database, families = Options.load_latest(directory, Env(), False, cache)
        except Exception as cause:
            raise _not_taken(path, str(cause).replace(directory, str(path.parent))) from cause
    if set(families) != {_FAMILY}:
        raise _not_taken(path, f"column families {', '.join(sorted(families)) or 'none'}")
    return database, families[_FAMILY]


def _refuse(path: Path, text: str) -> None:
    parser = configparser.ConfigParser(interpolation=None, strict=False, delimiters=("=",))
    try:
        parser.read_string(text)
    except configparser.Error as cause:
        raise _not_taken(path, str(cause)) from cause
    for section in parser.sections():
        for name, value in parser[section].items():
            safe = _REFUSED.get(name)
            if safe is not None and value.strip() not in safe:
                raise ConfigError(
                    f"{name} in {path}",
                    expected=" or ".join(each or "no value" for each in safe),
                    found=value,
                    action="correct it: a table could lose rows or leave them out of a snapshot",
                )


def _not_taken(path: Path, found: str) -> ConfigError:
    return ConfigError(
        f"option rocksdb.options_file {path}",
        expected='RocksDB\'s options file with [Version], [DBOptions], [CFOptions "default"] and, '
        'for blocks, [TableOptions/BlockBasedTable "default"]',
        found=found,
        action="correct it; every database of RocksDB has such a file, OPTIONS-<number>",
    )
