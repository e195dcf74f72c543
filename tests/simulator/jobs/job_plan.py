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


class JobPlan(Version):
    """A random job as a value; by default each start runs the same program."""

    parallelism: int
    mode: Mode = "exactly-once"
    """At-least-once jobs may write a record again, and nothing else."""
    judged: tuple[str, ...] = ()
    """Sinks of which only `objection` knows what they must hold."""

    @property
    def rescalable(self) -> bool:
        """Whether the job's output is the same at every parallelism."""
        return True

    def version(self, start: int, ended: Version | None, *, calm: bool) -> Version:
        """The program of a start; once faults have stopped it is one that is never refused.

        `ended` is that of which parts have come to their end, if any have.
        """
        return self

    @abstractmethod
    def expected(self) -> Records:
        """What each other sink must hold in the end, once."""

    def drained(self, committed: Mapping[str, Counter[Any]]) -> Records | None:
        """What each sink must hold of a job that was drained when it had written this much.

        None: what it has read is no beginning of its splits.
        """
        return self.expected()

    def objection(self, committed: Mapping[str, Counter[Any]]) -> str | None:
        """What is wrong with the output as a whole, when all was written."""
        return None

    @abstractmethod
    def describe(self) -> str:
        """The plan in a line."""


@dataclass(frozen=True)
class FixedPlan(JobPlan):
    """A job as a user writes it; only its input is drawn, and a few of its settings."""

    about: str
    parallelism: int
    build: Callable[[Sinks], Job]
    written: Records

    def job(self, sink: Sinks) -> Job:
        return self.build(sink)

    def expected(self) -> Records:
        return dict(self.written)

    def describe(self) -> str:
        return f"parallelism {self.parallelism}; {self.about}"
