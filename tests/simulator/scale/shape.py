"""The job that is modelled.

Invariant: figures only; nothing of it runs.
"""

from dataclasses import dataclass

from tidelog.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Shape:
    """A job and what it runs on; times in seconds, sizes in bytes."""

    tasks: int = 10
    subtasks: int = 1000
    """Subtasks of each task."""
    processes: int = 100
    """The subtasks are spread over them evenly; each has an uploader of its own."""
    log_bytes_per_s: float = 10_000.0
    """Changelog of a subtask."""
    table_bytes: float = 20e6
    """New table files of a subtask per materialization."""
    latency: float = 0.03
    """Time of a request to the store."""
    bandwidth: float = 100e6
    """Bytes per second between a process and the store."""
    interval: float = 10.0
    """Time between checkpoints."""
    materialize_interval: float = 600.0
    queued: float = 59.0
    """Back-pressure: the records in front of a barrier in a task's inputs take this long."""
    stuck: float = 30.0
    """Back-pressure: how long a barrier waits for room in a task's outputs."""
    unaligned_timeout: float = 60.0

    def __post_init__(self) -> None:
        """Raises ConfigError for a job that cannot be."""
        least = min(self.tasks, self.subtasks, self.processes)
        if least < 1 or self.tasks * self.subtasks < self.processes:
            raise ConfigError(
                "the modelled job",
                expected="at least one task, subtask and process, and a subtask for each process",
                found=f"{self.tasks} tasks of {self.subtasks} on {self.processes} processes",
                action="change one of them",
            )

    @property
    def total(self) -> int:
        """Subtasks of the job."""
        return self.tasks * self.subtasks

    @property
    def per_process(self) -> int:
        """Subtasks of the fullest process."""
        return -(-self.total // self.processes)
