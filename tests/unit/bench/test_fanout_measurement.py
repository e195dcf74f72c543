"""fanout in its smallest cells: counts of real runs."""

from pathlib import Path

import pytest

from tidelog_bench.experiments import fanout
from tidelog_bench.measurement import Setting, Size, Trial

WIDE: dict[str, Setting] = dict(fanout.cells(Size.QUICK)[0].settings) | {
    "latency_ms": 1.0,
    "checkpoint_s": 0.1,
    "materialize_s": 60.0,
    "checkpoints": 3,
    "seconds": 30.0,
}


def fanned(variant: str, parallelism: int, directory: Path) -> dict[str, float]:
    settings = WIDE | {"parallelism": parallelism}
    reading = fanout.measure_fanout(Trial(settings, variant, 1, directory))
    assert reading.notes["checkpoints"] >= 1
    assert reading.notes["failed"] == 0
    return dict(reading.figures)


def test_without_the_log_every_subtask_writes_its_table_for_every_checkpoint(
    tmp_path: Path,
) -> None:
    figures = fanned("off", 3, tmp_path)
    assert figures["log_objects_per_checkpoint"] == 0
    # A new table file and a descriptor of each of the three, and the manifest.
    assert figures["table_objects_per_checkpoint"] >= 2 * 3
    assert figures["objects_per_checkpoint"] == figures["table_objects_per_checkpoint"] + 1
    assert figures["requests_per_checkpoint"] > figures["objects_per_checkpoint"]
    # A checkpoint a second, at 0.432 $ a day for a PUT a second; some of the PUTs are under way at
    # the first and the last moment.
    assert figures["dollars_per_day"] == pytest.approx(
        figures["objects_per_checkpoint"] * 0.432, rel=0.5
    )


def test_with_the_log_all_subtasks_share_one_object_or_the_manifest(tmp_path: Path) -> None:
    figures = fanned("on", 3, tmp_path)
    assert figures["table_objects_per_checkpoint"] == 0
    assert 1 <= figures["objects_per_checkpoint"] <= 3
    assert figures["kb_per_checkpoint"] > 0


@pytest.mark.parametrize("size", Size)
def test_cells_differ_in_parallelism_and_cover_it(size: Size) -> None:
    cells = fanout.cells(size)
    widths = [cell.settings["parallelism"] for cell in cells]
    assert len({cell.key for cell in cells}) == len(cells)
    assert {1, 50} <= set(widths)
    if size is not Size.QUICK:
        assert 200 in widths
    if size is Size.FULL:
        assert widths == [1, 2, 5, 10, 20, 50, 100, 200]
