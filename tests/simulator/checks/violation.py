"""A property that did not hold."""

from dataclasses import dataclass
from enum import StrEnum


class Property(StrEnum):
    """What every run must keep, as reports name it."""

    EXACTLY_ONCE = "exactly-once"
    """Committed outputs equal a plain evaluation of the graph; never one too many meanwhile."""
    RESTORE = "restore-equality"
    """A completed checkpoint restores to the rows the subtasks had at its barrier."""
    BARRIER = "barrier"
    """What a channel holds behind a barrier is handled after the snapshot."""
    MANIFEST = "manifest"
    """A slot's manifest keeps every invariant, and all objects it names are stored."""
    BOUNDED_LOG = "bounded-log"
    """A manifest names no log that its table and a checkpoint known to be complete cover."""
    FENCING = "fencing"
    """No incarnation takes a slot or commits after a newer one started."""
    COMMIT_ORDER = "commit-order"
    """A sink commits only what a durable manifest holds."""
    CENSUS = "census"
    """After a clean start and end the store holds what retained manifests name, and no more."""
    PROGRESS = "progress"
    """Once faults stop the job ends within a bounded time."""
    REFUSAL = "refusal"
    """A start that does not go with its checkpoint is refused, before it fences anything."""
    NO_DEFECT = "no-defect"
    """An incarnation ends well or with an error that its surroundings explain."""


@dataclass(frozen=True, slots=True)
class Violation:
    property: Property
    detail: str

    def __str__(self) -> str:
        return f"{self.property}: {self.detail}"
