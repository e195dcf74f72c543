"""The keyed state backend of one subtask: table, write buffer and log chain together.

Invariants:
- every change reaches the log in a flush, and the table in the same flush or later (`write_back`),
  at the latest before it is scanned or frozen: rows that change all the time are written to it once
  for many flushes, and a barrier waits for the log alone;
- a table that is frozen has all changes below `seqno`, and may have later ones, which every
  checkpoint that refers to it has in its log;
- `seqno` counts the changes flushed and never goes back;
- the table and the buffer belong to one task; nothing else touches them.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tidelog.changelog.block import seal_metadata
from tidelog.changelog.cadence import FLUSH_LEAD_S, Cadence
from tidelog.changelog.change import ChangeBatch
from tidelog.changelog.row_memory import RowAccount, RowMemory
from tidelog.changelog.state_rows import Columns, StateRows
from tidelog.changelog.write_buffer import WriteBuffer
from tidelog.errors import StateSchemaError
from tidelog.ids import SeqNo
from tidelog.state.config import FlushConfig
from tidelog.state.event_time import EventTime
from tidelog.state.key_groups import KeyGroupRange, key_group
from tidelog.state.log import ChangeSink, FlushMetrics
from tidelog.state.registry import StateRegistry
from tidelog.state.ttl import TtlSweep
from tidelog.table.port import Table

if TYPE_CHECKING:
    from tidelog.state.recovery.hydration import TableHydration

_NO_CHANGE = SeqNo(0)
SWEPT_PER_STEP = 2048
"""Rows with a time to live that are visited without a pause: a millisecond or two."""
MAX_SWEPT = 16_384
"""Rows with a time to live that are visited after one buffer; others wait for the next one."""
MAX_DIRTY = 1 << 19
"""Rows that the table may lack: their number is what a materialization has to write first. Fewer
would be written more often: with a quarter of it, jobs take a fifth more processor time."""
_MAX_DIRTY_HURRIED = MAX_DIRTY * 3 // 2
"""Rows that the table may lack while a checkpoint is under way, which is more urgent."""
_WRITTEN_ROWS = 512
"""Rows that go to the table without a pause: it takes over a millisecond, and holds the GIL."""
MAX_EVICTION_STEPS = 8
"""Steps in which rows leave memory after one buffer."""
_PIECE_ROWS = 16_384
"""Changed rows that are flushed early when they combine nothing: some 40 ms of work."""
_PIECE_AGE: Final = 1 / 4
"""Share of `flush.max_age` before which changed rows are not flushed early."""
MAX_BATCH_BYTES = 8 << 20
"""A flush of more than this is several batches: table and log copy each as a whole."""


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
    memory: RowMemory = field(default_factory=RowMemory)
    """What the rows of all subtasks may take."""
    hydration: "TableHydration | None" = None
    """What of the table is missing; None: it has been whole from the beginning."""
    seqno: SeqNo = _NO_CHANGE
    updates: int = 0
    """What the changes below `seqno` combine, as far as it was counted."""
    metrics: FlushMetrics = field(default_factory=FlushMetrics)
    sweeps: list[TtlSweep] = field(default_factory=list)
    """One for each state with a time to live."""
    event_time: EventTime = field(default_factory=EventTime)
    key_prefix: bytes = b""
    """Key group of the current key, set by `use_key`."""
    key: bytes = b""
    """The current key, encoded."""
    reads_only: bool = False
    """Nothing is ever put and nobody bounds memory: what is read is not kept, nothing is swept."""
    buffer: WriteBuffer = field(init=False)
    _hidden: list[StateRows] = field(init=False, default_factory=list)
    _account: RowAccount = field(init=False)
    _row_bytes: float = field(init=False, default=64.0)
    _flushed_at: float = field(init=False)
    _metadata_due: bool = field(init=False, default=True)
    _broken: Exception | None = field(init=False, default=None)
    _maintained: int = field(init=False, default=0)
    """Updates, flushed or not, when rows were maintained last."""
    _write_through: bool = field(init=False, default=False)
    """Each flush writes to the table: a state is scanned, for which all rows have to be there."""

    def __post_init__(self) -> None:
        self.buffer = WriteBuffer(self.table)
        self._account = self.memory.account(self._shed)
        self._flushed_at = self.monotonic()

    def rows(
        self,
        encode: Callable[[Any], bytes],
        decode: Callable[[bytes], Any],
        *,
        scanned: bool = False,
        cached: bool = True,
        hidden: bool = False,
        encode_many: Callable[[list[Any]], list[bytes]] | None = None,
    ) -> StateRows:
        """The rows of a registered state; one that is only scanned needs no cache.

        `hidden`: how far a task is, such as positions, which no figure counts as anybody's state.
        `encode_many` encodes the values of a flush before anything is written, and may refuse them.
        """
        self._metadata_due = True
        cached = cached and not self.reads_only
        self._write_through = self._write_through or scanned or not cached
        rows = self.buffer.state(
            encode, decode, cached=cached, scanned=scanned, encode_many=encode_many
        )
        if hidden:
            self._hidden.append(rows)
        return rows

    def sweep(self, sweep: TtlSweep) -> None:
        """Remove what expires of a state; it is scanned for that."""
        self.sweeps.append(sweep)
        self._write_through = True

    def use_encoded_key(self, encoded: bytes) -> None:
        """Make this the current key of all states."""
        self.key = encoded
        self.key_prefix = key_group(encoded, self.key_groups).to_bytes(2, "big")

    @property
    def is_whole(self) -> bool:
        """Whether reads of the table never wait for parts of its files."""
        return self.hydration is None or self.hydration.is_whole

    def rows_bytes(self) -> int:
        """About how much memory the rows take that are buffered, dirty or cached."""
        return self.buffer.memory_bytes

    def reads_table(self) -> bool:
        """Whether a look-up of a row may need the table."""
        return not self.buffer.is_complete

    def table_bytes(self) -> int:
        """Estimated size of the table's data, with that of the rows which it does not have yet."""
        return self.table.size_bytes() + int(self.buffer.dirty * self._row_bytes)

    @property
    def buffered(self) -> bool:
        """Changes wait for the next flush."""
        return len(self.buffer) > 0

    @property
    def crowded(self) -> bool:
        """Whether the rows of all subtasks take more memory than they may; counts those of this."""
        self._account.holds(self.rows_bytes())
        return self.memory.exceeded

    def flush_due(self) -> bool:
        """The buffer is full or old; asked after every few records, for it counts memory too."""
        self._account.holds(self.rows_bytes())
        size = len(self.buffer)
        if size == 0:
            self._flushed_at = self.monotonic()
            return False
        age = self.monotonic() - self._flushed_at
        return (
            size >= self.config.rows
            or size * self._row_bytes >= self.config.bytes
            or age >= self.config.max_age
            or self._in_pieces(size, age)
            or self._ahead_of_checkpoint(size)
        )

    def _in_pieces(self, size: int, age: float) -> bool:
        """Whether to flush now as waiting saves nothing: no row was changed twice so far."""
        # A barrier that comes amid a flush of all waits for its end. At full speed the buffer is
        # full soon, and rows that live for a moment only are better never written.
        return (
            size >= _PIECE_ROWS
            and age >= self.config.max_age * _PIECE_AGE
            and self.buffer.updates - size <= size >> 5
        )

    def _ahead_of_checkpoint(self, size: int) -> bool:
        """Whether to flush now so that the barrier finds less to do."""
        # Hot rows would be back by then: what is combined twice over is left to the barrier.
        return (
            self.cadence is not None
            and self.buffer.updates <= 2 * size
            and self.cadence.leads(self._flushed_at, FLUSH_LEAD_S)
        )

    def _shed(self) -> Iterator[None]:
        """Free the memory of all rows, step by step: what is dirty goes to the table before, and
        what is buffered to the log, too.
        """
        while self._evict(self.rows_bytes()) or (self.buffered and self._flush_some(cache=False)):
            self._account.holds(self.rows_bytes())
            yield
        self._account.holds(self.rows_bytes())

    def _evict(self, size: int) -> bool:
        """Drop rows of about so many bytes, or write dirty ones to the table so that they can be
        dropped; whether there were any.
        """
        if self.buffer.evict(size):
            return True
        return self.buffer.dirty > 0 and self._unless_broken(self._write_dirty) > 0

    @property
    def _surplus_bytes(self) -> int:
        """Bytes by which the cached rows exceed `flush.cache_bytes` or the memory for rows."""
        cached, limit = self.buffer.cached_bytes, self.config.cache_bytes
        surplus = 0 if limit is None else cached - limit
        return max(surplus, self.memory.surplus(cached))

    def release(self) -> None:
        """The subtask has ended: its rows are free to go when others need the memory."""
        self._account.shed = self._drop

    def _drop(self) -> Iterator[None]:
        """Free the memory of all rows for good, step by step."""
        while self.buffer.release():
            self._account.holds(self.rows_bytes())
            yield
        self._account.close()

    def close(self) -> None:
        """Free the memory of all rows: the job has ended, and others may use it."""
        for _ in self._drop():
            pass

    def flush(self, *, settle: bool = True) -> None:
        """Write all buffered changes to the log, and with `settle` to the table.

        Raises the table's errors, StateSchemaError for a value that cannot be encoded, and the
        same error ever after: changes that left the buffer and reached neither table nor log are
        lost, so no checkpoint may be taken of this backend any more.
        """
        self._flush_some(cache=True)  # also without changes: metadata may be due
        for _ in self.flush_in_steps(settle=settle):
            pass

    def flush_in_steps(self, *, cache: bool = True, settle: bool = False) -> Iterator[None]:
        """Like `flush`, some rows at a time; between two steps others may have their turn.

        Without `cache` the rows leave memory; with `settle` the table has them all. What is put in
        between is flushed as far as its turn comes; to have nothing left, call `flush` at the end.
        """
        remaining = len(self.buffer)
        while remaining > 0:
            remaining = min(remaining - self._flush_some(cache=cache), len(self.buffer))
            if remaining > 0:
                yield
        if settle:
            yield from self.settle()

    def settle(self) -> Iterator[None]:
        """Bring all rows to the table that it lacks now, some at a time: it has all changes below
        the present `seqno` then. What is flushed in between may be left. Raises as `flush`.
        """
        ends = self.buffer.dirty_ends()
        is_dirty = self.buffer.has_dirty_before(ends)
        while is_dirty:
            self._unless_broken(self._write_dirty)
            if is_dirty := self.buffer.has_dirty_before(ends):
                yield

    def write_back(self, keep: int) -> Iterator[None]:
        """Bring rows to the table that it lacks, but for the `keep` that may wait on.

        Some at a time; rows that are flushed in between may be left. Raises as `flush`.
        """
        remaining = self.buffer.dirty - keep
        while remaining > 0:
            written = self._unless_broken(partial(self._write_dirty, min(remaining, _WRITTEN_ROWS)))
            # Task and materializer may both be at it.
            remaining = min(remaining - written, self.buffer.dirty - keep)
            if remaining > 0:
                yield

    def _write_dirty(self, limit: int = _WRITTEN_ROWS) -> int:
        keys, values = self._encoding(partial(self.buffer.take_dirty, limit))
        self.table.write(keys, values)
        return len(keys)

    def _flush_some(self, *, cache: bool) -> int:
        """One batch of rows goes to the log, and to the table if it must; says how many rows."""
        return self._unless_broken(partial(self._write_batch, cache))

    def _unless_broken(self, write: Callable[[], int]) -> int:
        if self._broken is not None:
            raise self._broken
        try:
            return write()
        except Exception as error:
            self._broken = error
            raise

    def _write_batch(self, cache: bool) -> int:
        self._flushed_at = self.monotonic()
        size = len(self.buffer)
        if self._metadata_due:
            self._metadata_due = False
            self.log.submit_metadata(
                seal_metadata(msgspec.json.encode(self.registry.infos()), self.seqno)
            )
        for sweep in self.sweeps:
            sweep.count(self.now_ms())
        self.buffer.spill()
        hidden_rows = sum(map(len, self._hidden))
        hidden_updates = sum(map(attrgetter("updates"), self._hidden))
        updates = self.buffer.take_updates()
        through = self._write_through or not cache
        keys, values = self._encoding(partial(self.buffer.drain, cache=cache, dirty=not through))
        for sweep in self.sweeps:
            sweep.flushed()
        if not keys:
            return 0
        raw_bytes = 0
        for batch in ChangeBatch(self.seqno, keys, values).split(MAX_BATCH_BYTES):
            if through:
                self.table.write(batch.keys, batch.values)
            self.log.submit(batch)
            self.seqno = batch.end
            raw_bytes += batch.raw_bytes
        self.metrics.flushes += not len(self.buffer)
        self.metrics.changes += len(keys) - hidden_rows + sum(map(len, self._hidden))
        self.metrics.updates += updates - hidden_updates
        self.updates += updates
        # As `flush_due` counts them: many elements of a list, or of a batch, are in one row.
        self._row_bytes = raw_bytes / max(len(keys), size - len(self.buffer))
        return len(keys)

    def _encoding(self, take: Callable[[], Columns]) -> Columns:
        try:
            return take()
        except (TypeError, OverflowError, UnicodeEncodeError, RecursionError) as cause:
            raise StateSchemaError(
                f"a value in the state of operator {self.registry.operator!r}",
                expected="None, bool, int, float, str, bytes, and lists and dicts of these",
                found=str(cause),
                action="keep only such values, then start the job again; it resumes from its last "
                "checkpoint",
            ) from cause

    def maintain(self, *, hurried: bool = False) -> Iterator[None]:
        """What the last buffer has made due: rows go to the table when it lacks too many, leave
        memory when that is short, and are removed when they have expired.

        In proportion to what came, so that nobody ever waits long for it; less while the process
        is `hurried`. One step per item: others may have their turn in between.
        """
        updates = self.updates + self.buffer.updates
        came, self._maintained = updates - self._maintained, updates
        limit = _MAX_DIRTY_HURRIED if hurried else MAX_DIRTY
        yield from self.write_back(max(limit, self.buffer.dirty - 2 * came - _WRITTEN_ROWS))
        for _ in range(MAX_EVICTION_STEPS):
            if (surplus := self._surplus_bytes) <= 0:
                break
            self._evict(surplus)
            self._account.holds(self.rows_bytes())
            yield
        for sweep in self.sweeps if self.is_whole else ():
            now_ms = self.now_ms()
            remaining = min(sweep.rows_due(now_ms), MAX_SWEPT)
            while remaining > 0:
                sweep.step(now_ms, min(remaining, SWEPT_PER_STEP))
                remaining -= SWEPT_PER_STEP
                yield

    def begin_chain(self) -> SeqNo:
        """Let the log that follows start with state metadata: a materialization has what is before.

        Returns where it starts.
        """
        self._metadata_due = True
        return self.seqno
