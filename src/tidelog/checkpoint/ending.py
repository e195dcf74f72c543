"""The end of a job's input: when its sources end. Pure.

Invariants: a source that has read all of its input ends only when it is told to; the state of the
whole job is captured before that, at one moment, so it holds nothing that the end emits; where a
part of the job ends before the others there is no such moment, and no state to go on from.
"""

from collections.abc import Collection, Hashable, Mapping
from typing import Generic, TypeVar

Task = TypeVar("Task", bound=Hashable)


class SourceEnds(Generic[Task]):
    """Which sources have read all of their input, and which may end."""

    def __init__(
        self,
        sources: Mapping[Task, str] | None = None,
        *,
        endless: Collection[str] = (),
        captures: bool = False,
        resumes_end: bool = False,
    ) -> None:
        """`sources` are the tasks that read, each with its source; `endless` those sources that do
        not declare that they have an end. With `captures` the state before the end is captured;
        with `resumes_end` the job had ended, and goes on if there is more to read.
        """
        self._sources = dict(sources or {})
        self._endless = frozenset(endless)
        self.captures = captures and bool(self._sources)
        """Whether the state before the end is still to be captured."""
        self.unchanged = resumes_end
        """The job had ended, and no source has found anything to read since."""
        self._at_end: set[Task] = set()
        self._ending: set[Task] = set()
        """Tasks that were told to end."""

    def found_input(self) -> None:
        """A source has read something, or a checkpoint was taken."""
        self.unchanged = False

    def at_end(self, task: Task) -> frozenset[Task]:
        """A task has read all of its input; the tasks that end now, before others do."""
        self._at_end.add(task)
        waiting = self._at_end - self._ending
        if self.captures:
            reading = {self._sources[other] for other in self._sources.keys() - self._at_end}
            early: set[Task] = set()
            for other in waiting:
                if self._endless & (reading - {self._sources[other]}):
                    early.add(other)
            waiting = early
            self.captures = not early
        self._ending |= waiting
        return frozenset(waiting)

    @property
    def ready(self) -> bool:
        """Whether all sources wait for the capture of the state before the end."""
        return self.captures and self._at_end >= self._sources.keys()

    def captured(self) -> frozenset[Task]:
        """The state before the end is durable, or not wanted: the tasks that end now."""
        self.captures = False
        waiting = self._at_end - self._ending
        self._ending |= waiting
        return frozenset(waiting)
