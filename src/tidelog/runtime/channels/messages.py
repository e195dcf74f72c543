"""What flows through channels: buffers of records, and events between them.

Invariant: messages are never changed after they were sent. Many tasks may hold one event; the
records of a buffer belong to one task (`copies`).
"""

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from itertools import compress
from operator import add, not_
from typing import Any, Literal

from tidelog.checkpoint.decisions import SavepointRequest
from tidelog.ids import CheckpointId


@dataclass(slots=True)
class Batch:
    """A buffer of records; `times` are event times in milliseconds, when assigned."""

    records: list[Any]
    times: list[int] | None = None
    size_bytes: int = field(default=0, kw_only=True, compare=False)
    """What the records take in memory; 0: not measured yet."""
    in_flight: bool = field(default=False, kw_only=True, compare=False)
    """A checkpoint is about to store the records, as they are: who takes them gets copies."""

    def __len__(self) -> int:
        return len(self.records)

    def part(self, start: int, end: int) -> "Batch":
        """The records from one position up to and excluding another."""
        times = None if self.times is None else self.times[start:end]
        return Batch(self.records[start:end], times, size_bytes=self._share(end - start))

    def _share(self, count: int) -> int:
        """What so many of the records take, as far as it is known."""
        return self.size_bytes * count // len(self.records)


@dataclass(slots=True)
class SideBatch(Batch):
    """A buffer of the side output `tag`: no operator of its chain handles it."""

    tag: str = ""


@dataclass(slots=True)
class KeyedBatch(Batch):
    """A buffer after `key_by`: for every record its encoded key and key group (u16 BE)."""

    keys: list[bytes] = None  # type: ignore[assignment]  # always given; follows a default
    groups: list[bytes] = None  # type: ignore[assignment]
    side: int = 0
    """Which of the two streams of a join the records are of."""

    @property
    def group_keys(self) -> list[bytes]:
        """The key group and the encoded key of each record."""
        return list(map(add, self.groups, self.keys))

    def row_keys(self, state: bytes) -> list[bytes]:
        """The key of the row that each record's key has in a state of this id."""
        return [group + state + key for group, key in zip(self.groups, self.keys, strict=True)]

    def part(self, start: int, end: int) -> "KeyedBatch":
        return KeyedBatch(
            self.records[start:end],
            None if self.times is None else self.times[start:end],
            self.keys[start:end],
            self.groups[start:end],
            self.side,
            size_bytes=self._share(end - start),
        )

    def picked(self, positions: list[int]) -> "KeyedBatch":
        """The records at these positions."""
        records, times, keys, groups = self.records, self.times, self.keys, self.groups
        return KeyedBatch(
            [records[position] for position in positions],
            None if times is None else [times[position] for position in positions],
            [keys[position] for position in positions],
            [groups[position] for position in positions],
            self.side,
        )

    def divided(
        self, on_time: list[bool], tag: str | None
    ) -> "tuple[KeyedBatch, SideBatch | None]":
        """(the records on time, late ones for the side output `tag`), None without any or a tag."""
        assert self.times is not None
        if all(on_time):
            return self, None
        on_time_batch = replace(
            self,
            records=list(compress(self.records, on_time)),
            times=list(compress(self.times, on_time)),
            keys=list(compress(self.keys, on_time)),
            groups=list(compress(self.groups, on_time)),
            size_bytes=0,
        )
        if tag is None:
            return on_time_batch, None
        late = list(map(not_, on_time))
        records, times = compress(self.records, late), compress(self.times, late)
        return on_time_batch, SideBatch(list(records), list(times), tag)


@dataclass(frozen=True, slots=True)
class Watermark:
    """No later record has an event time at or below `time` (milliseconds)."""

    time: int


@dataclass(frozen=True, slots=True)
class Idleness:
    """Whether the channel is idle; an idle channel does not hold event time back."""

    idle: bool


@dataclass(frozen=True, slots=True)
class Splits:
    """What has changed in the splits that the records of this channel are read from; used for event
    time only. The first message of a channel tells of all there are.
    """

    started_splits: tuple[Hashable, ...]
    """Splits that records may follow from as of now, those not begun to be read included."""
    ended_splits: tuple[Hashable, ...]
    """Splits that no record follows from any more."""
    current: Hashable | None
    """The split of the records that follow; None: they are of no split."""


BarrierOrder = Literal["aligned", "may-switch", "unaligned"]
"""Whether a barrier stays in order, may overtake buffers after some time, or does so at once."""


@dataclass(frozen=True, slots=True)
class Barrier:
    """The border between the records before and after a checkpoint."""

    checkpoint: CheckpointId
    started: float
    """When the coordinator triggered it, on the monotonic clock."""
    final: bool = False
    order: BarrierOrder = "aligned"
    savepoint: SavepointRequest | None = None
    """The savepoint that the checkpoint is; its barrier never overtakes."""
    before_end: bool = False
    """Nothing is emitted after it but what the end of the input lets operators emit."""

    @property
    def stop(self) -> bool:
        """Whether nothing may be emitted after the barrier unless its checkpoint is given up."""
        return self.savepoint is not None and self.savepoint.stop

    @property
    def canonical(self) -> bool:
        """Whether the state is written as rows."""
        return self.savepoint is not None and self.savepoint.format == "canonical"


@dataclass(frozen=True, slots=True)
class LatencyMarker:
    """Follows records from the source to the sink, and waits wherever they wait.

    Operators that keep records until later, as windows do, are passed at once. No checkpoint
    stores it.
    """

    read_at: float
    """When the source read the records before it; all workers share this monotonic clock."""


@dataclass(frozen=True, slots=True)
class EndOfInput:
    """All of the input was handled that leads here; what follows is emitted only because it ends.

    Event time does not wait for the channel, unless its producer `holds` records until the end.
    """

    holds: bool


@dataclass(frozen=True, slots=True)
class EndOfData:
    """No record follows on this channel; barriers still do, up to the final checkpoint."""

    drain: bool = True
    """Whether the data has ended for good, so operators finish; else a later run goes on here."""


@dataclass(frozen=True, slots=True)
class EndOfChannel:
    """Nothing follows on this channel, its producer has exited: every later barrier is here."""


TaskEvent = Watermark | Idleness | Splits | EndOfInput | EndOfData | EndOfChannel
"""Events that a task sends to all downstream channels."""

Message = Batch | Barrier | LatencyMarker | TaskEvent
