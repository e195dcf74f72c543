"""The log of one process between two checkpoints: what is flushed, and the segments it becomes.

Invariants: closed forms, derived in docs/guides/estimate.md; every byte that is flushed is uploaded
once. The rules are those of `KeyedBackend.flush_due` and `tidelog.changelog.uploader`. All subtasks
of a process flush at once; where they do not, there are more segments than this.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil, exp
from typing import Final, NamedTuple

import msgspec

from tidelog.changelog.block import HEADER
from tidelog.changelog.cadence import FLUSH_LEAD_S, UPLOAD_LEAD_S
from tidelog.changelog.segment import HEADER_BYTES, TRAILER_BYTES, Entry
from tidelog.changelog.upload_config import UploadConfig
from tidelog.cost.model.job import Settings, Workload
from tidelog.ids import KeyGroup, SeqNo
from tidelog.state.config import FlushConfig

_FOOTER_ENTRY: Final = len(
    msgspec.msgpack.encode(
        Entry("process", 3, 1, 1 << 20, 1 << 16, SeqNo(1 << 31), 10_000, KeyGroup(0), KeyGroup(127))
    )
)
_BLOCK_BYTES: Final = HEADER.size + _FOOTER_ENTRY
"""What a block costs besides its payload."""
_SOURCE_CHANGE_BYTES: Final = 64
"""A source's change: the position of a split, a short row that is written once per flush."""
_HOT: Final = 2
"""Updates per row above which a flush ahead of a checkpoint is left out."""
_BARRIER_S: Final = 0.03
"""A barrier reaches all subtasks after up to this: sources look for it between two reads."""
_HALVINGS: Final = 60


class Flush(NamedTuple):
    """What the whole job flushes at one moment: the rows changed within so many seconds."""

    span_s: float
    rows: float

    @classmethod
    def of(cls, workload: Workload, span_s: float) -> "Flush":
        return cls(span_s, workload.distinct(span_s))


@dataclass(frozen=True, slots=True)
class Flushes:
    """The flushes of a cycle."""

    regular: Flush
    """One that the rows, the bytes or the age of a buffer bring about."""
    count: int
    """Such flushes in a cycle."""
    ahead: Flush
    """The flush ahead of the checkpoint; of 0 seconds: there is none."""
    barrier: Flush

    @property
    def all_rows(self) -> float:
        return self.count * self.regular.rows + self.ahead.rows + self.barrier.rows


def flushes(workload: Workload, subtasks: float, config: FlushConfig, cycle_s: float) -> Flushes:
    """The flushes of one cycle of `cycle_s` seconds."""
    span_s = _span_s(workload, subtasks, config)
    count = ceil(cycle_s / span_s) - 1
    rest_s = cycle_s - count * span_s
    ahead_s = max(0.0, rest_s - FLUSH_LEAD_S)
    if workload.writes_per_s * ahead_s > _HOT * workload.distinct(ahead_s):
        ahead_s = 0.0
    regular, ahead = Flush.of(workload, span_s), Flush.of(workload, ahead_s)
    return Flushes(regular, count, ahead, Flush.of(workload, rest_s - ahead_s))


def _span_s(workload: Workload, subtasks: float, config: FlushConfig) -> float:
    limit = min(config.rows, config.bytes / workload.raw_change_bytes) * subtasks
    low, high = 0.0, config.max_age
    if workload.distinct(high) <= limit:
        return high
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if workload.distinct(middle) < limit else (low, middle)
    return high


@dataclass(frozen=True, slots=True)
class _Blocks:
    """What a process flushes at one moment, in bytes."""

    raw: float = 0.0
    stored_bytes: float = 0.0
    largest: float = 1.0
    """Raw bytes of the largest block."""

    def __add__(self, other: "_Blocks") -> "_Blocks":
        largest = max(self.largest, other.largest)
        return _Blocks(self.raw + other.raw, self.stored_bytes + other.stored_bytes, largest)

    def times(self, count: float) -> "_Blocks":
        return replace(self, raw=self.raw * count, stored_bytes=self.stored_bytes * count)

    def segments(self, config: UploadConfig) -> float:
        """Full segments of these bytes, and one more for a rest too large for a manifest."""
        full, rest = divmod(self.raw, self.full(config))
        return full + (rest > config.inline_bytes)

    def full(self, config: UploadConfig) -> float:
        """Raw bytes of a full segment: it is full with the block that fills it."""
        return ceil(config.segment_bytes / self.largest) * self.largest


@dataclass(frozen=True, slots=True)
class LogCycle:
    """The log of one process between two checkpoints, on average."""

    changes: float
    """Rows that are logged: updates after the write buffer has combined them."""
    segments: float
    segment_bytes: float
    """Bytes of all segments of the cycle."""
    inline_bytes: float
    """Bytes of the tail in a manifest, as blocks."""
    waited_s: float
    """Seconds from a barrier until the log before it is durable, or ready for the manifest."""
    presence: float
    """Share of the subtasks with keyed state that a segment holds something of."""
    shared: float
    """Share of the bytes whose segment also holds something of sources."""


@lru_cache(maxsize=1_024)
def log_cycle(workload: Workload, settings: Settings, cycle_s: float) -> LogCycle:
    """What one process logs and uploads in a cycle of `cycle_s` seconds."""
    cycle = flushes(workload, settings.parallelism, settings.flush, cycle_s)
    source = _source_blocks(settings)
    aged = ceil(cycle_s / settings.flush.max_age) - 1
    regular = _keyed_blocks(workload, settings, cycle.regular)
    if cycle.count:
        regular += source.times(aged / cycle.count)
    ahead = _keyed_blocks(workload, settings, cycle.ahead)
    tail = _keyed_blocks(workload, settings, cycle.barrier) + source
    leaving = _leaving(settings, cycle_s, cycle, regular, ahead, tail)
    # A materialization flushes in between; what that adds travels with the flushes around it.
    split = _rows_split(workload, cycle) * cycle_s / settings.materialize.interval
    split /= settings.uploaders
    stored_bytes = regular.times(cycle.count).stored_bytes + ahead.stored_bytes + tail.stored_bytes
    writes = workload.writes_per_s / settings.parallelism * cycle_s / leaving.segments
    headers = leaving.segments * (HEADER_BYTES + TRAILER_BYTES)
    return LogCycle(
        changes=cycle.all_rows / settings.uploaders + split,
        segments=leaving.segments,
        segment_bytes=stored_bytes + split * workload.change_bytes + headers,
        inline_bytes=leaving.inline_bytes,
        waited_s=min(leaving.waited_s, cycle_s + settings.link.latency_s),
        presence=1 - exp(-writes),
        shared=1 - leaving.apart_bytes / stored_bytes,
    )


def _keyed_blocks(workload: Workload, settings: Settings, flush: Flush) -> _Blocks:
    """A flush of all subtasks with keyed state of a process."""
    rows = flush.rows / settings.uploaders
    written = 1 - exp(-workload.writes_per_s * flush.span_s / settings.parallelism)
    blocks = settings.keyed_per_process * written
    raw = rows * workload.raw_change_bytes
    stored_bytes = rows * workload.change_bytes + blocks * _BLOCK_BYTES
    return _Blocks(raw, stored_bytes, max(1.0, raw / max(blocks, 1e-9)))


def _source_blocks(settings: Settings) -> _Blocks:
    """A flush of all sources of a process: by age, and at the barrier."""
    one_source = _Blocks(_SOURCE_CHANGE_BYTES, _SOURCE_CHANGE_BYTES + _BLOCK_BYTES)
    return one_source.times(settings.sources_per_process)


def _rows_split(workload: Workload, cycle: Flushes) -> float:
    """Rows that one more flush at a random moment adds, because it splits another one."""
    split = total_s = 0.0
    for (span_s, rows), count in (
        (cycle.regular, cycle.count),
        (cycle.ahead, 1),
        (cycle.barrier, 1),
    ):
        split += count * span_s * (2 * workload.distinct(span_s / 2) - rows)
        total_s += count * span_s
    return split / total_s


@dataclass(frozen=True, slots=True)
class _Leaving:
    """How what is flushed in a cycle leaves the process."""

    segments: float
    inline_bytes: float
    waited_s: float
    apart_bytes: float = 0.0
    """Bytes in segments that hold nothing of sources."""


def _leaving(
    settings: Settings,
    cycle_s: float,
    cycle: Flushes,
    regular: _Blocks,
    ahead: _Blocks,
    tail: _Blocks,
) -> _Leaving:
    """The `regular` flushes of limits, those `ahead` of a checkpoint, the `tail` at its barrier."""
    config, link = settings.upload, settings.link
    between, joins = _between(config, cycle, regular), False
    if between:
        joins = 0 < cycle.ahead.span_s < config.max_age  # then it leaves with the last of these
    elif cycle.count:
        ahead += regular.times(cycle.count)
    gathered = ahead + tail
    # Ahead of a checkpoint raw bytes count, at the barrier those that the manifest would hold.
    weight = max(gathered.raw, gathered.stored_bytes) if ahead.raw else gathered.stored_bytes
    if not between and weight <= config.inline_bytes:
        # A materialization flushes as well, and what waits leaves with that.
        turns = settings.materialize.interval / settings.keyed_per_process / cycle_s
        cycles = max(1.0, min(config.inline_bytes // weight + 1, turns))
        return _Leaving(1 / cycles, gathered.stored_bytes * cycles / 2, config.linger)

    # A tail that the manifest holds goes with the next segment.
    small = tail.stored_bytes <= config.inline_bytes
    leads = on_its_way_s = 0.0
    if ahead.raw and not joins:
        leads = (gathered if small else ahead).segments(config)
    rest = tail if leads or joins else gathered
    if leads:
        on_its_way_s = link.latency_s + ahead.stored_bytes / link.bytes_per_s - UPLOAD_LEAD_S
    # The barrier comes anywhere within `_BARRIER_S`: so often the tail has to be uploaded, too.
    uploaded = min(1.0, max(0.0, (on_its_way_s - config.linger) / _BARRIER_S))
    tails = uploaded
    if rest.stored_bytes > config.inline_bytes:
        uploaded, tails = 1.0, max(1.0, rest.segments(config))
    inlined_s = max(config.linger, on_its_way_s)
    uploaded_s = (
        max(config.linger + link.latency_s, on_its_way_s) + rest.stored_bytes / link.bytes_per_s
    )
    return _Leaving(
        between + leads + tails,
        (1 - uploaded) * rest.stored_bytes,
        (1 - uploaded) * inlined_s + uploaded * uploaded_s,
        ahead.stored_bytes if leads and not small else 0.0,
    )


def _between(config: UploadConfig, cycle: Flushes, regular: _Blocks) -> float:
    """Segments of the flushes by limits; 0 where they are so small that they wait."""
    # Those that are flushed while the first of them ages in the queue leave with it.
    together = max(1, min(cycle.count, 1 + int(config.max_age / cycle.regular.span_s)))
    group = regular.times(together)
    if not cycle.count or group.raw <= config.inline_bytes:
        return 0.0
    if group.raw > config.segment_bytes:
        return cycle.count * regular.raw / regular.full(config)
    return cycle.count / together
