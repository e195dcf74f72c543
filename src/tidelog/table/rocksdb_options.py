"""The RocksDB settings of tidelog's tables.

Invariant: every value that differs from RocksDB's default has its reason here or its numbers in
docs/decisions/002-rocksdb-options.md.
"""

from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Final, Literal, get_args

from tidelog.errors import ConfigError
from tidelog.options.declaration import option
from tidelog.options.kinds import Choice, Flag, Integer, Number, PathKind, Range, Size

Compression = Literal["none", "lz4", "lz4hc", "zstd", "snappy", "zlib", "bz2"]

_MIB: Final = 1 << 20
MOST_CACHE: Final = 4 << 40
"""RocksDB crashes with a cache of 16 TiB."""
LARGEST_MEMTABLE: Final = 16 * _MIB

MANIFEST_BYTES = 64 << 10
"""The MANIFEST is in every snapshot, so it stays small: a file takes about 130 bytes in it."""


@dataclass(frozen=True, slots=True)
class RocksDBConfig:
    """Settings of RocksDB for the tables of one factory; sizes in bytes."""

    block_cache_bytes: int | None = option(
        None,
        Size(Range(_MIB, MOST_CACHE)),
        "Block cache of all tables together; memtables count in it.",
        when="Set it to give reads another share of `memory` than the 3/8 of `automatic`.",
        none="automatic",
    )
    write_buffers_bytes: int | None = option(
        None,
        Size(Range(_MIB)),
        "Memtables of all tables together.",
        when="Set it to give writes another share of `memory` than the quarter of `automatic`.",
        none="automatic",
    )
    write_buffer_bytes: int | None = option(
        None,
        Size(Range(64 << 10)),
        "The size of a memtable at which it is flushed to a file.",
        when="Larger makes fewer files; `automatic` is half a table's share of all memtables, and "
        "16 MiB at most.",
        none="automatic",
    )
    background_jobs: int = option(
        2,
        Integer(Range(1, 256)),
        "Threads for flushes and compactions of a table.",
        when="Raise it when writes stall on compactions and cores are idle.",
    )
    compression: Compression = option(
        "lz4",
        Choice(get_args(Compression)),
        "Compression of the tables' files.",
        when="zstd for smaller uploads, at more work for each read and compaction.",
    )
    block_bytes: int = option(
        4 << 10,
        Size(Range(256, 16 * _MIB)),
        "Size of a block of a table's file, before compression.",
        when="16 KiB or more for smaller indexes where reads go by ranges.",
    )
    bloom_bits_per_key: int = option(
        10,
        Integer(Range(0, 100)),
        "Bits of the files' Bloom filters for each key; 0 is none.",
        when="0 where almost every read finds its key.",
    )
    memtable_bloom_ratio: float = option(
        0.05,
        Number(Range(0, 0.25)),
        "Share of a memtable for its Bloom filter.",
        when="0 where most reads find their row in the memtable.",
    )
    level0_files: int = option(
        8,
        Integer(Range(1, 1000)),
        "Flushed files that start a compaction; writes slow down at three times, and stop at five "
        "times as many.",
        when="Lower it for faster reads, raise it for less compaction and fewer uploads.",
    )
    target_file_bytes: int = option(
        8 * _MIB,
        Size(Range(64 << 10)),
        "Size of the files of the first level.",
        when="Larger makes fewer objects in the store; smaller uploads less again after a change.",
    )
    mmap_reads: bool | None = option(
        None,
        Flag(),
        "Whether files are mapped: reads copy nothing, but count as resident memory, and a failing "
        "disk ends the process with SIGBUS.",
        when="`automatic` maps files from a `memory` of 1 GiB on; off for a small process.",
        none="automatic",
    )

    options_file: Path | None = option(
        None,
        PathKind(),
        "RocksDB's own options file: it replaces this section, but for the options whose default "
        "is `automatic`.",
        when="For options of RocksDB that have no name here.",
        none="none",
    )

    def __post_init__(self) -> None:
        if self.options_file is None:
            return
        for setting in fields(self):
            value = getattr(self, setting.name)
            if setting.name not in _BESIDE_A_FILE and value != setting.default:
                raise ConfigError(
                    f"option rocksdb.{setting.name}",
                    expected="no value, for rocksdb.options_file sets it",
                    found=str(value),
                    action="write it into the options file, or leave the file out",
                )

    def within(self, memory: "RocksMemory") -> "RocksDBConfig":
        """The same with memory for everything that is automatic."""
        explicit = {
            name: value for name in _AUTOMATIC if (value := getattr(self, name)) is not None
        }
        return replace(self, **(asdict(memory) | explicit))


@dataclass(frozen=True, slots=True)
class RocksMemory:
    """The memory of the tables of one factory where the options leave it open."""

    block_cache_bytes: int = 256 * _MIB
    write_buffers_bytes: int = 192 * _MIB
    write_buffer_bytes: int = LARGEST_MEMTABLE
    mmap_reads: bool = True


_AUTOMATIC: Final = tuple(setting.name for setting in fields(RocksMemory))
_BESIDE_A_FILE: Final = {*_AUTOMATIC, "options_file"}
