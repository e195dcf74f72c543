"""What the world knows of a job: how each start builds it, and what it must write in the end.

Invariant: a plan is decided by its random source alone, and so is each of its versions; what it
expects is computed without tidelog.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tidelog import Checkpoint, Job, Sink
from tidelog.runtime.config import Mode

Refusal = Literal["never", "possible", "certain"]
"""Whether a start is refused; a certain refusal comes before anything is fenced."""
Sinks = Callable[[str], Sink]
"""The sinks of a job by their names."""
Records = dict[str, Counter[Any]]
"""Records for each sink."""


class Version(ABC):
    """The program that one start of a job runs."""

    dropped: tuple[str, ...] = ()
    """Operators whose state the user gives up with `--allow-dropped-state`."""

    @abstractmethod
    def job(self, sink: Sinks) -> Job:
        """The job, built anew for each incarnation."""

    def refusal(self, checkpoint: Checkpoint) -> Refusal:
        """Whether a start of this program from a checkpoint must be refused."""
        return "never"


@dataclass(frozen=True, kw_only=True)
class JobPlan(ABC):
    """A random job as a value."""

    about: str
    """The plan in a line."""
    parallelism: int
    expected: Records
    """What each sink must hold in the end, once; `objection` judges those that are not here."""
    mode: Mode = "exactly-once"
    """At-least-once jobs may write a record again, and nothing else."""
    rescalable: bool = True
    """Whether the job's output is the same at every parallelism."""
    drained: Callable[[Records], Records | None] | None = None
    """What each sink must hold of a job that was drained when it had written this much; gives None
    when what it has read is no beginning of its splits.
    """

    @abstractmethod
    def version(self, start: int, ended: Version | None, *, calm: bool) -> Version:
        """The program of a start; once faults have stopped it is one that is never refused.

        `ended` is that of which parts have come to their end, if any have.
        """

    def objection(self, committed: Mapping[str, Counter[Any]]) -> str | None:
        """What is wrong with the output as a whole, when all was written."""
        return None


@dataclass(frozen=True, kw_only=True)
class FixedPlan(JobPlan, Version):
    """A job that is the same program at each start."""

    build: Callable[[Sinks], Job]

    def job(self, sink: Sinks) -> Job:
        return self.build(sink)

    def version(self, start: int, ended: Version | None, *, calm: bool) -> Version:
        return self
