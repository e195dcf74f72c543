"""The plan of a checkpoint: where barriers start and who takes part (Flink's FLIP-147).

Invariant: every task that runs takes part, and gets the barrier either from the coordinator or
from a predecessor that takes part; what has exited does neither.
"""

from collections.abc import Collection, Mapping, Set
from dataclasses import dataclass
from typing import Generic, TypeVar

Task = TypeVar("Task")


@dataclass(frozen=True, slots=True)
class Plan(Generic[Task]):
    """One checkpoint's part for every task that has not exited."""

    starts_at: frozenset[Task]
    """Get the barrier from the coordinator: nobody is left in front of them to bring it."""
    takes_part: frozenset[Task]
    """Have to acknowledge."""


def make_plan(predecessors: Mapping[Task, Collection[Task]], exited: Set[Task]) -> Plan[Task]:
    """The plan for tasks with their direct predecessors, of which some have exited."""
    running = frozenset(predecessors.keys() - exited)
    starts_at = frozenset(
        task for task in running if all(before in exited for before in predecessors[task])
    )
    return Plan(starts_at, running)
