"""What uploading a table costs: the files that are new since its last snapshot.

Invariants: changes go to files of level 0, when a memtable is full and at every snapshot; when
enough of those lie there, they are merged into the level below, which renews it, unless they are
too small for that; no snapshot uploads more than the whole table and its level 0. Against recorded
runs of RocksDB this is right within a factor of two: tests/unit/cost/model/test_tables.py.
"""

from dataclasses import dataclass
from math import ceil, gcd

from tidelog.cost.model.workload import Workload
from tidelog.table.rocksdb_options import LARGEST_MEMTABLE, MANIFEST_BYTES, RocksOptions


@dataclass(frozen=True, slots=True)
class TableRules:
    """How a table turns changes into files; sizes in bytes."""

    memtable_bytes: int = LARGEST_MEMTABLE
    memtable_row_bytes: int = 20
    """What a row takes in a memtable besides key and value: number, lengths, skip list; estimated
    from when RocksDB flushes."""
    level0_files: int = RocksOptions().level0_files
    """Files of level 0 that start a merge."""
    level_bytes: int = 256 << 20
    """Size of the level below level 0, in a large table: `max_bytes_for_level_base`."""
    level_ratio: int = 10
    """Size of a level over that of the one above it: `max_bytes_for_level_multiplier`."""
    file_bytes: int = RocksOptions().target_file_bytes
    flushes_per_snapshot: int = 2
    """Once ahead, while the job runs, and once when the snapshot is taken."""
    private_bytes: float = MANIFEST_BYTES / 2
    """Bytes of files that are stored anew each time: RocksDB's MANIFEST, until it begins anew."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One upload of the table of one subtask, on average."""

    new_bytes: float
    new_files: float
    stored_bytes: float
    """Bytes of all files of the table, which a restore reads."""
    stored_files: float
    merges: float = 1.0
    """Share of the uploads that follow a merge."""
    merged_bytes: float = 0.0
    """Bytes that are new because merges renewed them; among `new_bytes`."""
    merged_files: float = 0.0


def snapshot(
    workload: Workload,
    subtasks: float,
    rules: TableRules,
    changes_per_s: float,
    interval_s: float,
) -> Snapshot:
    """Uploads every `interval_s` seconds of a table that holds 1 / `subtasks` of the keys.

    `changes_per_s` are those of all tables, as the write buffer lets them through.
    """
    # Rows that are overwritten take room in a memtable, too.
    row = workload.row_bytes + rules.memtable_row_bytes
    fill_s = rules.memtable_bytes / (changes_per_s / subtasks * row)
    filled = int(interval_s // fill_s)
    full_bytes = workload.distinct(fill_s) / subtasks * workload.table_row_bytes
    # What is flushed ahead of a snapshot; the flush at the snapshot itself adds a few rows.
    rest_s = interval_s - filled * fill_s
    rest_bytes = workload.distinct(rest_s) / subtasks * workload.table_row_bytes
    flushed = rules.flushes_per_snapshot
    merges, rests, full, new_full = _level0(filled, flushed, rules.level0_files)
    merged = workload.table_bytes / subtasks
    base_files = ceil(merged / rules.file_bytes)
    rewritten = _rewritten(rules, merges, merged, filled, filled * full_bytes + rest_bytes)
    rewritten_files = rewritten / merged * base_files
    return Snapshot(
        new_bytes=new_full * full_bytes + rest_bytes + rewritten,
        new_files=new_full + flushed + rewritten_files,
        stored_bytes=merged + full * full_bytes + rests * rest_bytes,
        stored_files=base_files + full + rests * flushed,
        merges=merges,
        merged_bytes=rewritten,
        merged_files=rewritten_files,
    )


def _level0(filled: int, at_snapshot: int, most: int) -> tuple[float, float, float, float]:
    """Level 0 with `filled` files of full memtables between two snapshots, on average: (merges
    between them, snapshots whose own flushes lie there, files of full memtables that lie there,
    those of them that are new).
    """
    files = filled + at_snapshot
    merges = min(1.0, files / most) if filled else 1 / ceil(most / at_snapshot)
    rests = (1 / merges + 1) / 2
    # Before a snapshot's own flushes there are 0 to `most` - 1, in steps of the common divisor.
    before = (most + gcd(files, most)) / 2 - 1
    full = max(0.0, before - (rests - 1) * at_snapshot) if filled else 0.0
    return merges, rests, full, min(full, filled * (1 - merges / 2))


def _rewritten(
    rules: TableRules, merges: float, table_bytes: float, filled: int, flushed_bytes: float
) -> float:
    """Bytes below level 0 that merges renew between two snapshots."""
    deep = table_bytes > rules.level_bytes
    below = table_bytes / rules.level_ratio if deep else table_bytes
    gathered = rules.level0_files / (filled + rules.flushes_per_snapshot) * flushed_bytes
    # Where level 0 is smaller than its share, its files are merged with each other until it is not.
    small = gathered * rules.level_ratio < below
    rewritten = rules.level_ratio * flushed_bytes if small else merges * below
    if deep:
        rewritten += rules.level_ratio * flushed_bytes
    return min(rewritten, table_bytes)
