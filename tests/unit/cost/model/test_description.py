"""Workloads and settings: derived sizes, and figures that no job can have."""

import pytest

from tidelog.cost.model.settings import Link, Settings
from tidelog.cost.model.workload import Workload
from tidelog.errors import ConfigError
from tidelog.materialize.config import MaterializeConfig


def test_a_row_and_a_change_are_as_docs_format_says() -> None:
    workload = Workload(1, 1_000, key_bytes=16, value_bytes=100, compression=0.5)
    assert workload.row_bytes == 2 + 2 + 16 + 100
    assert workload.raw_change_bytes == workload.row_bytes + 1 + 4 + 4
    assert workload.change_bytes == workload.raw_change_bytes / 2
    assert workload.table_bytes == 1_000 * workload.row_bytes


def test_a_state_that_compresses_has_smaller_rows_in_its_table() -> None:
    assert Workload(1, 1_000, state_bytes=50_000).table_row_bytes == 50


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"writes_per_s": 0}, "write rate"),
        ({"keys": 0}, "keys"),
        ({"skew": -0.1}, "skew"),
        ({"compression": 1.1}, "compression"),
        ({"compression": 0}, "compression"),
        ({"state_bytes": 0}, "state's size"),
        ({"value_bytes": -1}, "value"),
    ],
)
def test_a_workload_out_of_range_is_refused(change: dict[str, float], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        Workload(**{"writes_per_s": 1, "keys": 1, **change})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"parallelism": 1, "processes": 2}, "parallelism"),
        ({"processes": 0}, "processes"),
        ({"retain": 0}, "retained"),
        ({"checkpoint_interval": 0}, "checkpoint interval"),
        ({"restores_per_month": -1}, "restores"),
        ({"link": Link(bytes_per_s=0)}, "bandwidth"),
        ({"link": Link(latency_s=-1)}, "latency"),
        ({"materialize": MaterializeConfig(interval=0)}, "materialization interval"),
    ],
)
def test_settings_out_of_range_are_refused(change: dict[str, object], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        Settings(**change)  # type: ignore[arg-type]


def test_sources_are_as_many_as_subtasks_with_state_unless_told() -> None:
    assert Settings(parallelism=6, processes=2).sources_per_process == 3
    assert Settings(parallelism=6, processes=2, sources=2).sources_per_process == 1
