"""Which subtasks of a job a process has.

Invariant: a subtask is in one process; every worker has its share of each operator, and subtasks of
equal number are together, so what a forward edge carries stays in its process.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tidelog.ids import SubtaskId


@dataclass(frozen=True)
class Share:
    """Which subtasks a process has: every worker has its share of each operator."""

    worker: int = 0
    """The worker's number; -1: the parent, which has no subtasks."""
    workers: int = 1

    def worker_of(self, subtask: int) -> int:
        return subtask % self.workers

    def has(self, subtask: int) -> bool:
        return self.worker_of(subtask) == self.worker

    def of(self, subtasks: Iterable[SubtaskId]) -> list[SubtaskId]:
        """Those of this process."""
        return [each for each in subtasks if self.has(each.subtask)]


ALL: Final = Share()
"""The share of a process that has all subtasks."""
NONE: Final = Share(-1)
"""The share of the parent of workers."""
