"""What computes a figure, from inputs whose figures are known."""

import pytest

from tidelog import Checkpoint
from tidelog.checkpoint.manifest import Author
from tidelog.checkpoint.sizes import CheckpointSizes
from tidelog.effects import SystemClock
from tidelog.ids import CheckpointId, Generation, Slot
from tidelog.runtime.checkpoints.completed import completed
from tidelog.storage.memory import MemoryStore
from tidelog_bench.embedded import checkpoints
from tidelog_bench.embedded.checkpoints import Completed
from tidelog_bench.experiments.fanout import figures_of
from tidelog_bench.store import NONE, ModelledStore

ENTRY = Checkpoint(Slot(1), Author(Generation(0), "a"), CheckpointId(1), 0, "job", ())


def checkpoint(duration_s: float, *, log: int = 0, new: int = 0, table: int = 0) -> Completed:
    facts = completed(
        ENTRY, None, (duration_s / 2, duration_s), 0, CheckpointSizes(log, new, table, 0)
    )
    return Completed(ENTRY, facts, log + 1_000, table)


def test_durations_are_nearest_ranks_in_milliseconds() -> None:
    figures = checkpoints.durations([checkpoint(n / 1_000) for n in range(1, 1_001)])
    assert figures["mean_ms"] == pytest.approx(500.5)
    assert [figures[f"p{share}_ms"] for share in (50, 90, 99, 999)] == [500, 900, 990, 999]
    assert figures["max_ms"] == 1_000
    assert figures["barrier_p50_ms"] == 0
    assert figures["upload_p50_ms"] == figures["manifest_p50_ms"] == pytest.approx(250.0)


def test_a_full_checkpoint_is_log_and_table_and_what_it_adds_is_only_new() -> None:
    found = [
        checkpoint(1, log=1_000_000, new=500_000, table=8_000_000),
        checkpoint(1, log=3_000_000, new=2_000_000, table=8_000_000),
    ]
    figures = checkpoints.sizes(found)
    assert figures["incremental_mean_mb"] == pytest.approx(1.25)
    assert figures["incremental_max_mb"] == 2.0
    assert figures["full_peak_mb"] == pytest.approx(11.001)
    assert figures["full_mean_mb"] == pytest.approx(10.001)
    assert figures["log_peak_mb"] == 3.0


async def test_figures_of_a_window_are_those_of_one_checkpoint_and_dollars_of_one_a_second() -> (
    None
):
    written = {"segments/a": 1000, "tables/b": 500, "materializations/c": 300, "checkpoints/d": 200}
    store = ModelledStore(MemoryStore(), SystemClock(), NONE)
    begun = store.totals()
    for _ in range(4):
        for name, size in written.items():
            await store.put(name, bytes(size))
        await store.delete("segments/a")
    names = [write.name for write in store.writes]
    figures = figures_of(store.totals().since(begun), names, [0.003, 0.004, 0.005, 0.006])
    assert figures["objects_per_checkpoint"] == 4
    assert figures["table_objects_per_checkpoint"] == 2
    assert figures["log_objects_per_checkpoint"] == 1
    assert figures["requests_per_checkpoint"] == 5
    assert figures["kb_per_checkpoint"] == 2.0
    assert figures["p50_ms"] == pytest.approx(4.0)
    assert figures["dollars_per_day"] == pytest.approx(4 * 86_400 * 0.005 / 1000, rel=1e-4)
