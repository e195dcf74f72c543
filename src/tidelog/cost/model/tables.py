"""Uploads of tables: how often they come, and the files that are new since the last one.

Invariants: triggers are those of `tidelog.materialize.schedule`; subtasks materialize at evenly
spread phases, one at a time in a process. Changes go to files of level 0, when a memtable is full
and at every snapshot; when enough of those lie there, they are merged into the level below, which
renews it, unless they are too small for that; no snapshot uploads more than the whole table and its
level 0. Against recorded runs of RocksDB new files are right within a factor of two:
tests/unit/cost/model/test_tables.py.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from math import ceil, gcd
from typing import Final, NamedTuple

from tidelog.cost.model.formulas import descriptor_bytes
from tidelog.cost.model.job import Settings, Workload
from tidelog.cost.model.log import LogCycle
from tidelog.cost.model.restoring import Objects, side_by_side_s
from tidelog.materialize.materializer import LOOK_S
from tidelog.materialize.pacing import TRANSFERS
from tidelog.table.rocksdb_options import LARGEST_MEMTABLE, MANIFEST_BYTES, RocksDBConfig

_ROCKS: Final = RocksDBConfig()
_MEMTABLE_ROW_BYTES: Final = 20
"""What a row takes in a memtable besides key and value; estimated from when RocksDB flushes."""
_LEVEL_BYTES: Final = 256 << 20
"""Size of the level below level 0, in a large table: `max_bytes_for_level_base`."""
_LEVEL_RATIO: Final = 10
"""How much larger a level is than the one above it: `max_bytes_for_level_multiplier`."""
_MANIFEST_BEGINS: Final = 160
"""Bytes of a new table's MANIFEST ..."""
_MANIFEST_GROWS: Final = 130
"""... and what a materialization adds to it: the files that were flushed, and what merges drop."""
_ROUNDING: Final = 1e-9
_ROUNDS: Final = 8
"""Rounds that settle the time between uploads and their duration, which depend on each other."""
_LEAST_SHARE: Final = 0.1
"""Share of the bandwidth that tables get when the log leaves them nothing."""


@dataclass(frozen=True, slots=True)
class TableUpload:
    """One upload of the table of one subtask, on average."""

    new_bytes: float
    new_files: float
    stored_bytes: float
    """Bytes of all files of the table, which a restore reads."""
    stored_files: float
    descriptor_bytes: float = 0.0
    merges: float = 1.0
    """Share of the uploads that follow a merge."""
    merged_bytes: float = 0.0
    """Bytes that are new because merges renewed them; among `new_bytes`."""
    merged_files: float = 0.0


def snapshot(
    workload: Workload,
    subtasks: float,
    changes_per_s: float,
    interval_s: float,
    flushes: int = 1,
    age: float | None = None,
) -> TableUpload:
    """Uploads every `interval_s` seconds of a table that holds 1 / `subtasks` of the keys.

    `changes_per_s` are those of all tables, as the write buffer lets them through. A table is
    flushed ahead of a snapshot, and when it is taken again if it was written to meanwhile:
    `flushes`; `age` is `Settings.descriptor_age`.
    """
    # Rows that are overwritten take room in a memtable, too.
    row = workload.row_bytes + _MEMTABLE_ROW_BYTES
    fill_s = LARGEST_MEMTABLE / (changes_per_s / subtasks * row)
    filled = int(interval_s // fill_s)
    full_bytes = workload.table_rows(fill_s) / subtasks * workload.table_row_bytes
    # What is flushed ahead of a snapshot; the flush at the snapshot itself adds a few rows.
    rest_s = interval_s - filled * fill_s
    rest_bytes = workload.table_rows(rest_s) / subtasks * workload.table_row_bytes
    level0 = _level0(filled, flushes)
    merged = workload.table_bytes / subtasks
    base_files = ceil(merged / _ROCKS.target_file_bytes)
    flushed_bytes = filled * full_bytes + rest_bytes
    rewritten = _rewritten(level0.merges, merged, filled + flushes, flushed_bytes)
    rewritten_files = rewritten / merged * base_files
    stored_files = base_files + level0.full + level0.rests * flushes
    return TableUpload(
        new_bytes=level0.new_full * full_bytes + rest_bytes + rewritten,
        new_files=level0.new_full + flushes + rewritten_files,
        stored_bytes=merged + level0.full * full_bytes + level0.rests * rest_bytes,
        stored_files=stored_files,
        descriptor_bytes=descriptor_bytes(stored_files, _private_bytes(age)),
        merges=level0.merges,
        merged_bytes=rewritten,
        merged_files=rewritten_files,
    )


def _private_bytes(age: float | None) -> float:
    """RocksDB's MANIFEST, which is stored anew each time, on average."""
    if age is None:
        return MANIFEST_BYTES / 2
    return min(MANIFEST_BYTES / 2, _MANIFEST_BEGINS + _MANIFEST_GROWS * age)


class _Level0(NamedTuple):
    """Level 0 at a snapshot, on average."""

    merges: float
    """Since the snapshot before."""
    rests: float
    """Snapshots whose own flushes lie there."""
    full: float
    """Files of full memtables that lie there."""
    new_full: float
    """Those of them that the snapshot before did not have."""


def _level0(filled: int, at_snapshot: int) -> _Level0:
    """Level 0 with `filled` files of full memtables between two snapshots."""
    files, limit = filled + at_snapshot, _ROCKS.level0_files
    merges = min(1.0, files / limit) if filled else 1 / ceil(limit / at_snapshot)
    rests = (1 / merges + 1) / 2
    # Before a snapshot's own flushes there are 0 to `limit` - 1, in steps of the common divisor.
    before = (limit + gcd(files, limit)) / 2 - 1
    full = max(0.0, before - (rests - 1) * at_snapshot) if filled else 0.0
    return _Level0(merges, rests, full, min(full, filled * (1 - merges / 2)))


def _rewritten(merges: float, table_bytes: float, files: int, flushed_bytes: float) -> float:
    """Bytes below level 0 that merges renew between two snapshots, which flush so many files."""
    deep = table_bytes > _LEVEL_BYTES
    below = table_bytes / _LEVEL_RATIO if deep else table_bytes
    gathered = _ROCKS.level0_files / files * flushed_bytes
    # Where level 0 is smaller than its share, its files are merged with each other until it is not.
    small = gathered * _LEVEL_RATIO < below
    rewritten = _LEVEL_RATIO * flushed_bytes if small else merges * below
    if deep:
        rewritten += _LEVEL_RATIO * flushed_bytes
    return min(rewritten, table_bytes)


class MaterializationTrigger(StrEnum):
    """What starts most materializations."""

    INTERVAL = "interval"
    LOG_SIZE = "log size"
    REPLAY_TIME = "replay time"
    BANDWIDTH = "bandwidth"
    """Uploading all tables takes the whole interval, so none starts earlier."""


@dataclass(frozen=True, slots=True)
class TableUploads:
    """The uploads of the table of one subtask with keyed state; times in seconds."""

    table: TableUpload
    period: float
    """Between two uploads, on average."""
    longest: float
    """Between two uploads, at most."""
    upload: float
    """From the frozen table to the durable descriptor, while the job goes on."""
    trigger: MaterializationTrigger | None = None


def materializing(
    workload: Workload, settings: Settings, log: LogCycle, cycle_s: float
) -> TableUploads:
    """The interval that the runtime's triggers, and the time uploads take, lead to."""
    subtasks, age = settings.parallelism, settings.descriptor_age
    interval = effective_interval(settings, cycle_s)
    changes_per_s = log.changes / cycle_s * settings.uploaders
    log_per_s = log.segment_bytes / cycle_s
    of_subtask = 1 / settings.keyed_per_process
    table = snapshot(workload, subtasks, changes_per_s, interval, age=age)
    trigger, early = _first_trigger(
        settings, interval, table.stored_bytes, changes_per_s / subtasks, log_per_s * of_subtask
    )
    period = interval if early >= interval else interval / ceil(interval / early)
    longest, upload = min(interval, early), 0.0
    for _ in range(_ROUNDS):
        table = snapshot(workload, subtasks, changes_per_s, period, age=age)
        upload = _upload_s(settings, table, log_per_s)
        uploads_s = upload * settings.keyed_per_process
        if uploads_s > period:
            trigger = MaterializationTrigger.BANDWIDTH
            period, longest = uploads_s, max(uploads_s, longest)
    return TableUploads(table, period, longest, upload, trigger)


def effective_interval(settings: Settings, cycle_s: float) -> float:
    """Seconds between two materializations by the interval: at one of its turns there is nothing to
    do before something was flushed again.
    """
    interval = settings.materialize.interval
    flushed_s = min(cycle_s, settings.flush.max_age)
    return interval * max(1, ceil(flushed_s / interval - _ROUNDING))


def _first_trigger(
    settings: Settings,
    interval: float,
    table_bytes: float,
    changes_per_s: float,
    bytes_per_s: float,
) -> tuple[MaterializationTrigger, float]:
    """The trigger that comes first and the seconds until then, the interval's among them."""
    config = settings.materialize
    load = table_bytes / config.load_rate
    replay = max(config.replay_target, config.replay_share * load) * config.replay_rate
    log = max(config.min_log_bytes, config.log_factor * table_bytes)
    # The runtime looks every LOOK_S seconds for a trigger that holds by now.
    due_s = {
        MaterializationTrigger.INTERVAL: interval,
        MaterializationTrigger.REPLAY_TIME: ceil(replay / changes_per_s / LOOK_S) * LOOK_S,
        MaterializationTrigger.LOG_SIZE: ceil(log / bytes_per_s / LOOK_S) * LOOK_S,
    }
    trigger = min(due_s, key=due_s.__getitem__)
    return trigger, due_s[trigger]


def _upload_s(settings: Settings, table: TableUpload, log_bytes_per_s: float) -> float:
    """Some files at a time, in what the log leaves of the link, then the descriptor."""
    link = settings.link
    free = max(link.bytes_per_s - log_bytes_per_s, _LEAST_SHARE * link.bytes_per_s)
    speed = min(free, settings.materialize.bytes_per_s or free)
    files = Objects(table.new_files, table.new_bytes)
    return side_by_side_s(files, TRANSFERS, replace(link, bytes_per_s=speed)) + link.latency_s
