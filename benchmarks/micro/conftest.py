"""What micro-benchmarks get: a table, a backend."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.micro.inputs import KEY_GROUPS
from tidelog.changelog.block import SealedBlock
from tidelog.changelog.change import ChangeBatch
from tidelog.effects import SystemClock
from tidelog.ids import KeyGroup
from tidelog.state.backend import KeyedBackend
from tidelog.state.key_groups import KeyGroupRange
from tidelog.state.registry import StateRegistry
from tidelog.table.rocksdb import RocksTable
from tidelog.table.rocksdb_factory import RocksTableFactory


@pytest.fixture
def table(tmp_path: Path) -> Iterator[RocksTable]:
    """An empty RocksDB table with the default options."""
    table = RocksTableFactory().create(tmp_path / "table")
    yield table
    table.close()


class Dropped:
    """A log that drops what it gets: the uploader has benchmarks of its own."""

    changes = 0

    def submit(self, batch: ChangeBatch) -> None:
        """Only counts."""
        self.changes += len(batch)

    def submit_metadata(self, block: SealedBlock) -> None:
        """Nothing."""


@pytest.fixture
def backend(table: RocksTable) -> KeyedBackend:
    """The state of a subtask that owns all key groups."""
    clock = SystemClock()
    return KeyedBackend(
        registry=StateRegistry("operator"),
        key_groups=KEY_GROUPS,
        owned=KeyGroupRange(KeyGroup(0), KeyGroup(KEY_GROUPS - 1)),
        table=table,
        log=Dropped(),
        now_ms=clock.now_ms,
        monotonic=clock.monotonic,
    )
