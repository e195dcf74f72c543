"""A keyed backend over a memory table, with a clock that a test sets."""

from typing import Any

import pytest

from tidelog.changelog.block import SealedBlock
from tidelog.changelog.change import ChangeBatch
from tidelog.ids import KeyGroup
from tidelog.state.backend import KeyedBackend
from tidelog.state.config import FlushConfig
from tidelog.state.handles.keyed import ValueHandle
from tidelog.state.key_groups import KeyGroupRange, encode_key
from tidelog.state.registry import StateRegistry
from tidelog.table.memory import MemoryTable


class Log:
    """Remembers what was flushed."""

    def __init__(self) -> None:
        self.batches: list[ChangeBatch] = []
        self.metadata: list[SealedBlock] = []

    def submit(self, batch: ChangeBatch) -> None:
        self.batches.append(batch)

    def submit_metadata(self, block: SealedBlock) -> None:
        self.metadata.append(block)


class Bench:
    """A backend, its log and its time in milliseconds."""

    def __init__(self, **flush: Any) -> None:
        self.now = 1_000
        self.log = Log()
        self.table = MemoryTable()
        self.backend = self.open(StateRegistry("operator"), FlushConfig(**flush))
        self.backend.use_encoded_key(encode_key("k"))

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
        before.flush()
        self.backend = self.open(StateRegistry("operator", before.registry.infos()), before.config)
        self.backend.seqno = before.seqno
        self.backend.use_encoded_key(encode_key("k"))
        return self.backend

    def value(self, schema: str = "n int", name: str = "v") -> ValueHandle:
        return ValueHandle(self.backend, name, schema)

    def update(self, state: ValueHandle, key: Any, *value: Any) -> None:
        self.backend.use_encoded_key(encode_key(key))
        state.update(value)

    def sweep(self) -> None:
        for _ in self.backend.maintain():
            pass

    @property
    def stored(self) -> list[tuple[bytes, bytes]]:
        return list(self.table.scan(b"", None))

    @property
    def logged(self) -> int:
        """Changes in the log."""
        return sum(map(len, self.log.batches))


@pytest.fixture
def bench() -> Bench:
    return Bench()
