"""The end of a job's input: when its sources end. Pure.

Invariants: a source that has read all of its input ends only when it is told to; the state of the
whole job is captured before that, at one moment, so it holds nothing that the end emits; where a
part of the job ends before the others there is no such moment, and no state to go on from.
"""

from collections.abc import Collection, Hashable, Mapping
from typing import Generic, TypeVar

Task = TypeVar("Task", bound=Hashable)


class SourceEnds(Generic[Task]):
    """Which tasks have handled all of their input, and which sources may end."""

    def __init__(
        self,
        tasks: Collection[Task] = (),
        sources: Mapping[Task, str] | None = None,
        *,
        endless: Collection[str] = (),
        captures: bool = False,
        resumes_end: bool = False,
    ) -> None:
        """`tasks` are all that run; `sources` those that read, each with its source; `endless` the
        sources that do not declare that they have an end. With `captures` the state before the end
        is captured; with `resumes_end` the job had ended, and goes on if there is more to read.
        """
        self._tasks = frozenset(tasks)
        self._sources = dict(sources or {})
        self._endless = frozenset(endless)
        self._captures = captures and bool(self._sources)
        """The state before the end is still to be captured."""
        self.unchanged = resumes_end
        """The job had ended, and no source has found anything to read since."""
        self._at_end: set[Task] = set()
        self._ending: set[Task] = set()
        """Sources that were told to end."""

    def found_input(self) -> None:
        """A source has read something, or a checkpoint was taken."""
        self.unchanged = False

    def at_end(self, task: Task) -> frozenset[Task]:
        """A task has handled all of its input; the sources that end now, before others do."""
        self._at_end.add(task)
        waiting = self._waiting()
        if self._captures:
            waiting = frozenset(filter(self._waits_for_endless, waiting))
            self._captures = not waiting
        self._ending |= waiting
        return waiting

    @property
    def ready(self) -> bool:
        """Whether all tasks wait for the capture of the state before the end."""
        return self._captures and self._at_end >= self._tasks

    def captured(self) -> frozenset[Task]:
        """The state before the end is durable, or not wanted: the sources that end now."""
        self._captures = False
        waiting = self._waiting()
        self._ending |= waiting
        return waiting

    def _waiting(self) -> frozenset[Task]:
        return frozenset(self._at_end & self._sources.keys()) - self._ending

    def _waits_for_endless(self, task: Task) -> bool:
        """Whether another source still reads that may have no end."""
        for other in self._sources.keys() - self._at_end:
            name = self._sources[other]
            if name in self._endless and name != self._sources[task]:
                return True
        return False
