"""Uploads of tables: the estimate against recorded runs of RocksDB."""

import pytest

from tidelog.cost.model.job import Workload
from tidelog.cost.model.tables import snapshot

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
    estimated = snapshot(workload, 1, changes, 1.0, flushes)
    assert recorded / 2 <= estimated.new_bytes <= recorded * 2
