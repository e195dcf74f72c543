"""Both stores of a pair get the same settings of Spark, but for those that choose the store."""

from pathlib import Path

import pytest

from tidelog.spark.plugin.settings import FILE_MANAGER, FORMAT
from tidelog_bench.experiment import Cell, Experiment, Size, Trial
from tidelog_bench.experiments import spark_commit, spark_restore
from tidelog_bench.spark import job as jobs
from tidelog_bench.spark.job import Job

CHOOSE = {FORMAT, FILE_MANAGER, "spark.plugins", "spark.jars"}


@pytest.fixture(autouse=True)
def _no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "benchmark_jar", lambda: Path("benchmark.jar"))
    monkeypatch.setattr(jobs, "plugin_jar", lambda **_: Path("plugin.jar"))


def settings_of(cell: Cell, variant: str) -> dict[str, str]:
    trial = Trial(cell.settings, variant, 7, Path("unused"), Path("unused"))
    return trial.read(Job, store=variant).settings(Path("room"))


@pytest.mark.parametrize(
    "known", [spark_commit.EXPERIMENT, spark_restore.EXPERIMENT], ids=lambda known: known.name
)
def test_stores_differ_in_what_chooses_them_alone(known: Experiment) -> None:
    for cell in (cell for size in Size for cell in known.cells(size)):
        found = {variant: settings_of(cell, variant) for variant in cell.variants}
        common = [
            {k: v for k, v in of.items() if k not in CHOOSE and not k.startswith("spark.tidelog")}
            for of in found.values()
        ]
        assert all(one == common[0] for one in common)
        chosen = [{key: of.get(key) for key in CHOOSE} for of in found.values()]
        assert all(chosen.count(one) == 1 for one in chosen)
