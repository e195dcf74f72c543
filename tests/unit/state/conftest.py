"""A keyed backend over a memory table, with a clock that a test sets."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from tidelog.changelog.block import SealedBlock
from tidelog.changelog.change import ChangeBatch
from tidelog.ids import KeyGroup
from tidelog.state.backend import KeyedBackend
from tidelog.state.config import FlushConfig
from tidelog.state.key_groups import KeyGroupRange
from tidelog.state.registry import StateRegistry
from tidelog.table.memory import MemoryTable
from tidelog.table.port import Table


@dataclass
class Log:
    """Remembers what was flushed."""

    batches: list[ChangeBatch] = field(default_factory=list)
    metadata: list[SealedBlock] = field(default_factory=list)

    def submit(self, batch: ChangeBatch) -> None:
        self.batches.append(batch)

    def submit_metadata(self, block: SealedBlock) -> None:
        self.metadata.append(block)


class Bench:
    """A backend, its log and its time in milliseconds."""

    def __init__(self, table: Table | None = None, **flush: Any) -> None:
        self.now = 1_000
        self.log = Log()
        self.table = table or MemoryTable()
        self.backend = self.open(StateRegistry("operator"), FlushConfig(**flush))

    def open(self, registry: StateRegistry, flush: FlushConfig) -> KeyedBackend:
        return KeyedBackend(
            registry=registry,
            key_groups=4,
            owned=KeyGroupRange(KeyGroup(0), KeyGroup(3)),
            table=self.table,
            log=self.log,
            now_ms=lambda: self.now,
            monotonic=lambda: self.now / 1000,
            config=flush,
        )

    def reopen(self) -> KeyedBackend:
        """The backend of a restart at the last flush."""
        before = self.backend
        self.backend = self.open(StateRegistry("operator", before.registry.infos()), before.config)
        self.backend.seqno = before.seqno
        return self.backend


@pytest.fixture
def bench() -> Bench:
    return Bench()
