"""How the sources of one start end: whether a later start can go on after the end of the job.

Invariant: where it cannot, the start says why before anything is read.
"""

import logging
from collections.abc import Sequence

from tidelog.checkpoint.ending import SourceEnds
from tidelog.events import Event
from tidelog.ids import SubtaskId
from tidelog.runtime.source import Source
from tidelog.runtime.subtasks.loading import loading
from tidelog.runtime.subtasks.start import JobStart
from tidelog.runtime.subtasks.vertices import Vertex

logger = logging.getLogger(__name__)


def source_ends(start: JobStart) -> SourceEnds[SubtaskId]:
    """When the sources of a start end."""
    plan = start.plan
    sources: dict[str, Source] = {}
    tasks: set[SubtaskId] = set()
    reading: dict[SubtaskId, str] = {}
    for vertex in plan.vertices:
        running = [subtask for subtask in vertex.subtasks if subtask not in plan.finished]
        tasks.update(running)
        if vertex.head.source is not None:
            sources[vertex.id] = vertex.head.source
            reading |= dict.fromkeys(running, vertex.id)
    endless = [name for name, source in sources.items() if not source.has_end]
    captures = not start.config.finish_once and not plan.before_end
    if captures and (reason := _part_that_ends_alone(start)) is not None:
        captures = False
        _log_if_bounded(sources, reason)
    elif captures and endless and len(sources) > 1:
        names = ", ".join(endless)
        reason = f"{names} declares no end (has_end), and other sources may end before it"
        _log_if_bounded(sources, reason)
    resumes_end = plan.resumption.after_end
    return SourceEnds(tasks, reading, endless=endless, captures=captures, resumes_end=resumes_end)


def _part_that_ends_alone(start: JobStart) -> str | None:
    """Why no moment is before all that the end of the input lets the job emit."""
    if start.plan.finished:
        names = sorted({subtask.operator for subtask in start.plan.finished})
        return f"{', '.join(names)} has ended in an earlier run, before the rest of it"
    return _computed_table(start.plan.vertices)


def _computed_table(vertices: Sequence[Vertex]) -> str | None:
    """A table that is read first, and whose rows an operator may emit only at the end."""
    vertices_by_id = {vertex.id: vertex for vertex in vertices}
    pending = list(set().union(*loading(vertices).tables.values()))
    while pending:
        vertex = vertices_by_id[pending.pop()]
        if vertex.head.keyed:
            return f"operator {vertex.id} makes a table that is read before the rest of it begins"
        pending += [upstream.id for upstream in vertex.upstreams]
    return None


def _log_if_bounded(sources: dict[str, Source], reason: str) -> None:
    # A source that discovers again and again never ends, and the job does not either.
    if sources and all(source.rediscover_s is None for source in sources.values()):
        Event.ENDS_FOR_GOOD.log(logger, reason=reason)
