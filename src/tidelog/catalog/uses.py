"""Which parts of segments the checkpoints of a job use, and for which subtask."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidelog.changelog.segment import LogRange
from tidelog.checkpoint.manifest import Checkpoint
from tidelog.ids import Slot, SubtaskId


@dataclass(frozen=True, slots=True)
class RangeUse:
    """A range that checkpoints name as log or in-flight data of one subtask."""

    part: LogRange
    owner: SubtaskId
    """The subtask that wrote it."""
    slots: tuple[Slot, ...]
    """The checkpoints, in the order in which they were given."""

    @property
    def bytes(self) -> range:
        """The bytes of the segment."""
        return range(self.part.offset, self.part.offset + self.part.length)


def range_uses(checkpoints: Iterable[Checkpoint]) -> Mapping[str, tuple[RangeUse, ...]]:
    """The ranges that checkpoints need, by segment."""
    uses: dict[tuple[LogRange, SubtaskId], dict[Slot, None]] = defaultdict(dict)
    for checkpoint in checkpoints:
        for operator, state in checkpoint.subtasks():
            for layer in state.layers:
                for part in layer.log:
                    uses[part, SubtaskId(operator.id, layer.subtask)][checkpoint.slot] = None
            for part in state.in_flight.log if state.in_flight is not None else ():
                uses[part, SubtaskId(operator.id, state.index)][checkpoint.slot] = None
    by_segment: dict[str, list[RangeUse]] = defaultdict(list)
    for (part, owner), slots in uses.items():
        by_segment[part.segment].append(RangeUse(part, owner, tuple(slots)))
    return {segment: tuple(found) for segment, found in by_segment.items()}
