"""Uploads of tables: the estimate against a table that keeps its rules, and against RocksDB."""

from pathlib import Path
from random import Random

import pytest

from tests.property.estimate_simulation import LeveledTable
from tidelog.cost.model.tables import Snapshot, TableRules, snapshot
from tidelog.cost.model.workload import Workload

KEYS, VALUE_BYTES = 2_000, 92
ROW_BYTES = 4 + 4 + VALUE_BYTES


def followed(rules: TableRules, changes: int, snapshots: int) -> Snapshot:
    """Averages over real snapshots of a table, with uniformly drawn changes between them."""
    table, rng = LeveledTable(rules), Random(1)
    keys = [b"\0\0\0\0" + key.to_bytes(4, "big") for key in range(KEYS)]
    table.write(keys, [bytes(VALUE_BYTES)] * KEYS)
    known: dict[str, int] = {}
    new_bytes = new_files = stored_bytes = stored_files = 0
    warm = snapshots // 4
    for number in range(snapshots + warm):
        table.write([rng.choice(keys) for _ in range(changes)], [bytes(VALUE_BYTES)] * changes)
        table.flush()
        files = table.files()
        if number >= warm:
            new = {name: size for name, size in files.items() if name not in known}
            new_bytes, new_files = new_bytes + sum(new.values()), new_files + len(new)
            stored_bytes, stored_files = (
                stored_bytes + sum(files.values()),
                stored_files + len(files),
            )
        known = files
    return Snapshot(*(x / snapshots for x in (new_bytes, new_files, stored_bytes, stored_files)))


@pytest.mark.parametrize("changes", [400, 1_000, 2_500])
def test_new_and_stored_files_are_those_of_a_table_that_keeps_the_rules(changes: int) -> None:
    rules = TableRules(memtable_bytes=70_000, file_bytes=50_000, flushes_per_snapshot=1)
    workload = Workload(changes, KEYS, key_bytes=4, value_bytes=VALUE_BYTES)
    estimated = snapshot(workload, 1, rules, changes, 1.0)
    real = followed(rules, changes, 400)
    assert estimated.new_bytes == pytest.approx(real.new_bytes, rel=0.05)
    assert estimated.new_files == pytest.approx(real.new_files, rel=0.05)
    assert estimated.stored_bytes == pytest.approx(real.stored_bytes, rel=0.05)
    assert estimated.stored_files == pytest.approx(real.stored_files, rel=0.05)


def test_few_changes_do_not_renew_a_table_again_and_again() -> None:
    rules = TableRules(file_bytes=50_000, flushes_per_snapshot=1)
    workload = Workload(10, KEYS, key_bytes=4, value_bytes=VALUE_BYTES)
    estimated = snapshot(workload, 1, rules, 10, 1.0)
    real = followed(rules, 10, 800)
    assert real.new_bytes < KEYS * ROW_BYTES / 8
    assert estimated.new_bytes == pytest.approx(real.new_bytes, rel=0.5)


def test_the_subtasks_share_the_table() -> None:
    workload = Workload(10_000, 10_000_000)
    eight = snapshot(workload, 8, TableRules(), 10_000, 60.0)
    assert workload.table_bytes <= 8 * eight.stored_bytes <= 1.5 * workload.table_bytes


RECORDED = [
    # From throughput.jsonl in benchmarks/results/decisions, off@1s or off@20s, medians: 1 subtask,
    # snapshots by a flush each. Changes and seconds are those between two snapshots.
    ("16x5M off@1s", 17, 5_000_000, 125e6, 222_000 * 1.1, 1, 39.6e6),
    ("16x5M off@20s", 17, 5_000_000, 120e6, 228_000 * 20, 1, 153e6),
    ("200x2.85M off@1s", 200, 2_850_000, 566e6, 153_000 * 4, 1, 520e6),
    ("200x2.85M off@20s", 200, 2_850_000, 532e6, 122_000 * 20, 1, 740e6),
    # From restore.jsonl there, variants with the changelog: two flushes each.
    ("16x5M on, replay 0.5 s", 17, 5_000_000, 115e6, 384_000, 2, 63e6),
    ("16x5M on, replay 2 s", 17, 5_000_000, 115e6, 1_400_000, 2, 175e6),
]


@pytest.mark.parametrize(
    ("key_bytes", "keys", "table_bytes", "changes", "flushes", "recorded"),
    [run[1:] for run in RECORDED],
    ids=[run[0] for run in RECORDED],
)
def test_recorded_uploads_of_rocksdb_are_estimated_within_a_factor_of_two(
    key_bytes: int, keys: int, table_bytes: float, changes: float, flushes: int, recorded: float
) -> None:
    workload = Workload(
        changes, keys, key_bytes=key_bytes, value_bytes=9, state_bytes=int(table_bytes)
    )
    rules = TableRules(flushes_per_snapshot=flushes)
    estimated = snapshot(workload, 1, rules, changes, 1.0)
    assert recorded / 2 <= estimated.new_bytes <= recorded * 2


def test_the_stand_in_writes_the_files_it_names(tmp_path: Path) -> None:
    table = LeveledTable(TableRules(private_bytes=10))
    table.write([b"key"], [b"value"])
    files = table.snapshot(tmp_path / "snapshot")
    assert [(file.path.stat().st_size, file.shared) for file in files] == [(10, False), (8, True)]
