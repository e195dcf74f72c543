"""Checkpoints under back-pressure, with the real alignment: how long until the last snapshot.

The tasks form a chain; all subtasks of one are in the same state. A task has two kinds of input
channels: on one the barrier is reached at once, on the other behind all queued records.
"""

from dataclasses import dataclass, replace
from typing import Final

from tests.simulator.scale.shape import Shape
from tidelog.ids import CheckpointId
from tidelog.runtime.channels.messages import Barrier, BarrierOrder
from tidelog.runtime.tasks.alignment import Alignment, Switching

_FREE, _BEHIND = 0, 1


@dataclass(frozen=True, slots=True)
class Variant:
    """When a checkpoint may become unaligned."""

    name: str
    order: BarrierOrder
    by_start_time: bool
    in_outputs: bool


VARIANTS: Final = (
    Variant("aligned", "aligned", False, False),
    Variant("stage 1: within a task", "may-switch", False, False),
    Variant("stage 2: by the start time", "may-switch", True, False),
    Variant("stage 3: in outputs, too", "may-switch", True, True),
    Variant("unaligned from the start", "unaligned", True, True),
)


@dataclass(frozen=True, slots=True)
class Duration:
    """One variant's checkpoint."""

    variant: str
    seconds: float
    overtook: int
    """Tasks whose barrier overtook records in their inputs."""


def durations(shape: Shape) -> list[Duration]:
    """The duration of a checkpoint of each variant."""
    return [_duration(shape, variant) for variant in VARIANTS]


def _duration(shape: Shape, variant: Variant) -> Duration:
    switching = Switching(shape.unaligned_timeout, variant.by_start_time, variant.in_outputs)
    barrier = Barrier(CheckpointId(1), 0.0, order=variant.order)
    taken, overtook = 0.0, 0
    # The first task reads: it sends its barrier at once.
    for _ in range(shape.tasks - 1):
        announced, barrier = _leave(shape, switching, barrier, taken)
        taken, overtakes = _snapshot(shape, switching, barrier, announced)
        overtook += overtakes
    return Duration(variant.name, taken, overtook)


def _leave(
    shape: Shape, switching: Switching, barrier: Barrier, sent: float
) -> tuple[float, Barrier]:
    """When a barrier gets out of the outputs of a task, and as what."""
    room_at = sent + shape.stuck
    deadline = switching.output_deadline(barrier, sent)
    if deadline is None or deadline >= room_at:
        return room_at, barrier
    return max(sent, deadline), replace(barrier, order="unaligned")


def _snapshot(
    shape: Shape, switching: Switching, barrier: Barrier, announced: float
) -> tuple[float, bool]:
    """When a task takes its snapshot, and whether its barrier overtook records."""
    alignment = Alignment(2, exactly_once=True, switching=switching)
    decision = alignment.announced(barrier, announced)
    if decision.overtake:
        return announced, True
    alignment.barrier(_FREE, barrier, announced)
    reached, deadline = announced + shape.queued, alignment.deadline
    if deadline is not None and deadline < reached:
        switch_at = max(announced, deadline)
        if alignment.announced(barrier, switch_at).overtake:
            return switch_at, True
    assert alignment.barrier(_BEHIND, barrier, reached).complete
    return reached, False
