"""rescale in its smallest run, and the group that it is in."""

from dataclasses import asdict
from pathlib import Path

import pytest

from tests.support.depth import more_in_depth
from tidelog_bench.embedded.workload import Workload
from tidelog_bench.experiments import chosen, rescale
from tidelog_bench.measurement import Setting, Size, Trial

SMALL = Workload(2_000, 16, draws=20_000)
SETTINGS: dict[str, Setting] = asdict(SMALL) | {
    "parallelism": 2,
    "log_records": 12_000,
    "upload_s": 2.0,
    "checkpoint_s": 0.5,
    "latency_ms": 0.0,
    "mb_per_s": 0.0,
}


def test_more_is_a_group_and_part_of_all() -> None:
    names = {experiment.name for experiment in chosen(("more",))}
    assert names == {"rescale", "spark-bill"}
    assert {experiment.name for experiment in chosen(("all",))} >= {*names, "throughput", "peers"}


@pytest.mark.parametrize("size", Size)
def test_every_cell_compares_something_and_a_full_session_has_every_ratio(size: Size) -> None:
    (experiment,) = chosen(("rescale",))
    cells = experiment.measurement.cells(size)
    assert len({cell.key for cell in cells}) == len(cells) > 0
    for cell in cells:
        workload = Trial(cell.settings, "", 1, Path()).read(Workload)
        assert asdict(workload).items() <= cell.settings.items()
        formed = [r for r in experiment.ratios if {r.over, r.under} <= {*cell.variants}]
        assert formed if size is not Size.FULL else formed == [*experiment.ratios]


@pytest.mark.parametrize("variant", more_in_depth(["to 1"], ["to 2", "to 1"]))
def test_a_restore_with_fewer_subtasks_fetches_tables_and_log_once(
    tmp_path: Path, variant: str
) -> None:
    figures = rescale.run(Trial(SETTINGS, variant, 1, tmp_path)).figures
    state, table, fetched = (figures[f"{name}_mb"] for name in ("state", "table", "downloaded"))
    assert 0 < table < state
    # Besides the state only manifests and descriptors are read: some kilobytes.
    assert state <= fetched < state + 0.1
    # No row changes more than once in a flush, and of the splits there are a few changes.
    assert SMALL.keys * 0.5 < figures["changes"] <= 12_000 + 2048 + 100
