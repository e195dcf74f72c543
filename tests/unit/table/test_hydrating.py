"""A table whose files are holes answers as one that is whole; what is damaged is never a value."""

from pathlib import Path
from typing import cast

import pytest
from hypothesis.stateful import run_state_machine_as_test

from tests.property.profiles import looking
from tests.unit.table.conformance import (
    SMALL_BUFFERS,
    TableConformance,
)
from tests.unit.table.served import LocalHoles, ServingFactory
from tests.unit.table.test_model import TableMachine
from tidelog.table.hydrating import HydratingTable
from tidelog.table.port import Freeze
from tidelog.table.rocksdb import RocksTable


@pytest.fixture(params=[True, False], ids=["all tails", "no tail"])
def factory(request: pytest.FixtureRequest) -> ServingFactory:
    return ServingFactory(SMALL_BUFFERS, has_tails=request.param)


@pytest.fixture(autouse=True)
def whole_before_a_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    """No snapshot is uploaded with holes: its caller waits until the table is whole."""

    def freeze(table: HydratingTable, directory: Path) -> Freeze:
        cast(LocalHoles, table._holes).fill_all()
        return RocksTable.freeze(table, directory)

    monkeypatch.setattr(HydratingTable, "freeze", freeze)


class TestServedTables(TableConformance):
    """With the factory of this module."""


@pytest.mark.parametrize("has_tails", [True, False])
def test_a_table_of_holes_is_a_dict_with_snapshots(
    has_tails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.table.rocksdb._INGEST_ROWS", 10)

    class Machine(TableMachine):
        factory = ServingFactory(SMALL_BUFFERS, has_tails=has_tails)

    run_state_machine_as_test(Machine, settings=looking(15, 30))
