"""The keyed state backend of one subtask: table, write buffer and log chain together.

Invariants:
- every change reaches the table and the log in the same flush, so at a flush boundary the table
  equals "last materialization plus log up to `seqno`";
- `seqno` counts the changes flushed and never goes back;
- the table and the buffer belong to one task; nothing else touches them.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from tidelog.changelog.block import SealedBlock, seal_metadata
from tidelog.changelog.change import ChangeBatch
from tidelog.changelog.write_buffer import StateRows, WriteBuffer
from tidelog.checkpoint.manifest import StateInfo
from tidelog.dstl.cadence import FLUSH_LEAD_S, Cadence
from tidelog.errors import StateSchemaError
from tidelog.ids import SeqNo
from tidelog.state.key_groups import KeyGroupRange, encode_key, key_group
from tidelog.state.registry import StateRegistry
from tidelog.table.port import Table

_NO_CHANGE = SeqNo(0)
SWEEP_PAUSE_S = 1.0
"""Seconds between two steps of the removal of expired state."""


class ChangeSink(Protocol):
    """Where flushed changes go besides the table: the log, or nowhere when it is off."""

    def submit(self, batch: ChangeBatch) -> None: ...

    def submit_metadata(self, block: SealedBlock) -> None: ...


@dataclass(frozen=True, slots=True)
class FlushConfig:
    """When the write buffer is flushed besides at a barrier."""

    rows: int = 65_536
    bytes: int = 5 << 19
    """Of rows as the log stores them: 65,536 small ones, or some thousands of large ones."""
    max_age: float = 1.0
    """Seconds a change may stay unflushed while the job is busy."""
    cache_rows: int = 131_072
    """Rows kept in memory per state after a flush."""


@dataclass(slots=True)
class FlushMetrics:
    """Counters since the start."""

    flushes: int = 0
    changes: int = 0
    """Rows that reached table and log ..."""
    updates: int = 0
    """... and the puts, deletes and appends that they combine."""
    expired: int = 0
    """Rows removed because their time to live was over."""


@dataclass(slots=True)
class KeyedBackend:
    """State of one subtask; user-facing states are built over `rows`."""

    registry: StateRegistry
    key_groups: int
    owned: KeyGroupRange
    table: Table
    log: ChangeSink
    now_ms: Callable[[], int]
    monotonic: Callable[[], float]
    cadence: Cadence | None = None
    """When checkpoints come; None: they come without notice."""
    config: FlushConfig = field(default_factory=FlushConfig)
    seqno: SeqNo = _NO_CHANGE
    updates: int = 0
    """What the changes below `seqno` combine, as far as it was counted."""
    metrics: FlushMetrics = field(default_factory=FlushMetrics)
    sweeps: list[Callable[[int], int]] = field(default_factory=list)
    """Removers of expired state; each call looks at a few rows and returns what it removed."""
    key_prefix: bytes = b""
    """Key group of the current key, set by `use_key`."""
    key: bytes = b""
    """The current key, encoded."""
    _buffer: WriteBuffer = field(init=False)
    _row_bytes: float = field(init=False, default=64.0)
    _flushed_at: float = field(init=False)
    _metadata_due: bool = field(init=False, default=True)
    _broken: Exception | None = field(init=False, default=None)
    _swept_at: float = field(init=False, default=0.0)

    def __post_init__(self) -> None:
        self._buffer = WriteBuffer(self.table)
        self._flushed_at = self.monotonic()

    def rows(
        self,
        info: StateInfo,
        encode: Callable[[Any], bytes],
        decode: Callable[[bytes], Any],
        *,
        scanned: bool = False,
        cached: bool = True,
    ) -> StateRows:
        """The rows of a registered state; one that is only scanned needs no cache."""
        self._metadata_due = True
        return self._buffer.state(
            encode, decode, cache_rows=self.config.cache_rows if cached else 0, scanned=scanned
        )

    def use_key(self, key: object) -> None:
        """Make `key` the current key of all states."""
        self.use_encoded_key(encode_key(key))

    def use_encoded_key(self, encoded: bytes) -> None:
        """Like `use_key` for a key that is already encoded."""
        self.key = encoded
        self.key_prefix = key_group(encoded, self.key_groups).to_bytes(2, "big")

    def grew(self, elements: int) -> None:
        """Count elements that were appended to rows already in the buffer."""
        self._buffer.extra += elements

    def flush_due(self) -> bool:
        """The buffer is full or old."""
        size = len(self._buffer)
        if size == 0:
            self._flushed_at = self.monotonic()
            return False
        return (
            size >= self.config.rows
            or size * self._row_bytes >= self.config.bytes
            or self.monotonic() - self._flushed_at >= self.config.max_age
            or self._ahead_of_checkpoint(size)
        )

    def _ahead_of_checkpoint(self, size: int) -> bool:
        """Whether to flush now so that the barrier finds less to do."""
        # Hot rows would be back by then: what is combined twice over is left to the barrier.
        hot = self._buffer.updates > 2 * size
        return (
            self.cadence is not None
            and not hot
            and self.cadence.leads(self._flushed_at, FLUSH_LEAD_S)
        )

    def flush(self) -> None:
        """Write all buffered changes to table and log.

        Raises the table's errors, StateSchemaError for a value that cannot be encoded, and the
        same error ever after: changes that left the buffer and reached neither table nor log are
        lost, so no checkpoint may be taken of this backend any more.
        """
        if self._broken is not None:
            raise self._broken
        try:
            self._flush()
        except Exception as error:
            self._broken = error
            raise

    def _flush(self) -> None:
        self._flushed_at = self.monotonic()
        if self._metadata_due:
            self._metadata_due = False
            self.log.submit_metadata(
                seal_metadata(msgspec.json.encode(self.registry.infos()), self.seqno)
            )
        self._sweep_expired()
        updates = self._buffer.updates
        keys, values = self._drain()
        if not keys:
            return
        batch = ChangeBatch(self.seqno, keys, values)
        self.table.write(keys, values)
        self.log.submit(batch)
        self.seqno = batch.end
        self.metrics.flushes += 1
        self.metrics.changes += len(keys)
        self.metrics.updates += updates
        self.updates += updates
        self._row_bytes = batch.raw_bytes / len(keys)

    def _drain(self) -> tuple[list[bytes], list[bytes | None]]:
        try:
            return self._buffer.drain()
        except (TypeError, OverflowError, UnicodeEncodeError, RecursionError) as cause:
            raise StateSchemaError(
                f"a value in the state of operator {self.registry.operator!r}",
                expected="None, bool, int, float, str, bytes, and lists and dicts of these",
                found=str(cause),
                action="keep only such values, then start the job again; it resumes from its last "
                "checkpoint",
            ) from cause

    def _sweep_expired(self) -> None:
        now = self.monotonic()
        if self.sweeps and now - self._swept_at >= SWEEP_PAUSE_S:
            self._swept_at = now
            for sweep in self.sweeps:
                self.metrics.expired += sweep(self.now_ms())

    def begin_chain(self) -> None:
        """A materialization was taken here: the log that follows starts with state metadata."""
        self._metadata_due = True
