"""Which subtasks of a job a process has.

Invariant: a subtask is in one process; every worker has its share of each operator. Subtasks of
equal number are together, so forward edges between operators of one parallelism cross no process.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tidelog.ids import SubtaskId


@dataclass(frozen=True)
class Share:
    """The subtasks of one process, by its number among the workers."""

    worker: int = 0
    """The worker's number; -1: the parent, which has no subtasks."""
    workers: int = 1

    def worker_of(self, subtask: int) -> int:
        return subtask % self.workers

    def has(self, subtask: int) -> bool:
        return self.worker_of(subtask) == self.worker

    def of(self, subtasks: Iterable[SubtaskId]) -> list[SubtaskId]:
        """The ones of these subtasks that this process has."""
        return [each for each in subtasks if self.has(each.subtask)]


ALL: Final = Share()
"""The share of a process that has all subtasks."""
NONE: Final = Share(-1)
"""The share of the parent of workers."""
