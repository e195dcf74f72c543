"""What flows through channels: buffers of records, and events between them.

Invariant: messages are never changed after they were sent; many tasks may hold one.
"""

from dataclasses import dataclass
from typing import Any, Literal

from tidelog.checkpoint.request import SavepointRequest
from tidelog.ids import CheckpointId


@dataclass(slots=True)
class Batch:
    """A buffer of records; `times` are event times in milliseconds, when assigned."""

    records: list[Any]
    times: list[int] | None = None

    def __len__(self) -> int:
        return len(self.records)


@dataclass(slots=True)
class KeyedBatch(Batch):
    """A buffer behind `key_by`: for every record its encoded key and key group (u16 BE)."""

    keys: list[bytes] = None  # type: ignore[assignment]  # always given; follows a default
    groups: list[bytes] = None  # type: ignore[assignment]


@dataclass(frozen=True, slots=True)
class Watermark:
    """No later record has an event time at or below `time` (milliseconds)."""

    time: int


BarrierOrder = Literal["aligned", "may-switch", "unaligned"]
"""Whether a barrier keeps its place among the buffers, may overtake them when the checkpoint takes
too long, or overtakes them at once."""


@dataclass(frozen=True, slots=True)
class Barrier:
    """The border between the records before and after a checkpoint."""

    checkpoint: CheckpointId
    started: float
    """When the coordinator triggered it, on the monotonic clock."""
    final: bool = False
    order: BarrierOrder = "aligned"
    savepoint: SavepointRequest | None = None
    """That of a savepoint keeps its place: its files hold no in-flight data."""

    @property
    def stop(self) -> bool:
        """Nothing is emitted behind it unless its checkpoint is given up."""
        return self.savepoint is not None and self.savepoint.stop

    @property
    def canonical(self) -> bool:
        """The state is to be written as rows."""
        return self.savepoint is not None and self.savepoint.format == "canonical"


@dataclass(frozen=True, slots=True)
class EndOfData:
    """No record follows on this channel; barriers still do, up to the final checkpoint."""

    drain: bool = True
    """The data is over for good, so operators finish; else the job stops here to go on later."""


@dataclass(frozen=True, slots=True)
class EndOfChannel:
    """Nothing follows on this channel, its producer has exited: every later barrier is here."""


Message = Batch | Watermark | Barrier | EndOfData | EndOfChannel
