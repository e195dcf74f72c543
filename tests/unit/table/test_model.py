"""Any sequence of calls leaves a table equal to a plain dict, and its snapshots equal to what the
dict was when they were taken."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from tests.property.profiles import looking
from tests.unit.table.conformance import SMALL_BUFFERS, digests, lay_out, put, rows
from tidelog.table.memory import MemoryTableFactory
from tidelog.table.port import Table, TableFactory, TableFile
from tidelog.table.rocksdb_factory import RocksTableFactory

KEYS = st.binary(max_size=3)
BATCHES = st.dictionaries(KEYS, st.none() | st.binary(max_size=40), max_size=30)

Taken = tuple[list[TableFile], dict[str, str], dict[bytes, bytes]]


class TableMachine(RuleBasedStateMachine):
    """One table beside its model; `restore` continues from any snapshot taken so far."""

    factory: TableFactory
    snapshots: Bundle[Taken] = Bundle("snapshots")

    @initialize()
    def create(self) -> None:
        self.root = tempfile.TemporaryDirectory()
        self.directories = 0
        self.model: dict[bytes, bytes] = {}
        self.table: Table = self.factory.create(self.fresh_directory())

    def fresh_directory(self) -> Path:
        self.directories += 1
        return Path(self.root.name) / str(self.directories)

    def apply(self, batch: dict[bytes, bytes | None]) -> None:
        for key, value in batch.items():
            if value is None:
                self.model.pop(key, None)
            else:
                self.model[key] = value

    @rule(batch=BATCHES)
    def write(self, batch: dict[bytes, bytes | None]) -> None:
        self.table.write(list(batch), list(batch.values()))
        self.apply(batch)

    @rule(batch=BATCHES)
    def load(self, batch: dict[bytes, bytes | None]) -> None:
        keys = sorted(batch)
        self.table.load(keys, [batch[key] for key in keys])
        self.apply(batch)

    @rule(first=st.integers(0, 65_000), value=st.binary(min_size=20, max_size=40))
    def write_enough_to_flush(self, first: int, value: bytes) -> None:
        batch = {number.to_bytes(2, "big"): value for number in range(first, first + 500)}
        put(self.table, batch)
        self.apply(dict(batch))

    @rule(keys=st.lists(KEYS, max_size=20))
    def get(self, keys: list[bytes]) -> None:
        expected = [self.model.get(key) for key in keys]
        assert self.table.get_many(keys) == expected
        assert [self.table.get(key) for key in keys] == expected

    @rule(lower=KEYS, upper=st.none() | KEYS)
    def scan(self, lower: bytes, upper: bytes | None) -> None:
        inside = (k for k in self.model if lower <= k and (upper is None or k < upper))
        expected = [(key, self.model[key]) for key in sorted(inside)]
        assert list(self.table.scan(lower, upper)) == expected

    @rule(lower=KEYS, upper=st.none() | KEYS)
    def clip(self, lower: bytes, upper: bytes | None) -> None:
        if upper is None or lower <= upper:
            self.table.clip(lower, upper)
            inside = (k for k in self.model if lower <= k and (upper is None or k < upper))
            self.model = {key: self.model[key] for key in inside}

    @rule()
    def prepare_snapshot(self) -> None:
        self.table.prepare_snapshot()

    @rule(target=snapshots)
    def snapshot(self) -> Taken:
        files = self.table.freeze(self.fresh_directory())()
        return files, digests(files), dict(self.model)

    @rule(taken=snapshots)
    def restore(self, taken: Taken) -> None:
        files, written, model = taken
        assert digests(files) == written
        self.table.close()
        self.table = self.factory.restore(lay_out(files, self.fresh_directory()))
        self.model = dict(model)

    @invariant()
    def table_equals_model(self) -> None:
        if hasattr(self, "table"):
            assert rows(self.table) == self.model

    def teardown(self) -> None:
        if hasattr(self, "table"):
            self.table.close()
            self.root.cleanup()


@pytest.mark.parametrize(
    "factory", [MemoryTableFactory(), RocksTableFactory(SMALL_BUFFERS)], ids=["memory", "rocksdb"]
)
def test_a_table_is_a_dict_with_snapshots(
    factory: TableFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.table.rocksdb._INGEST_ROWS", 10)

    class Machine(TableMachine):
        pass

    Machine.factory = factory
    run_state_machine_as_test(Machine, settings=looking(15, 30))
