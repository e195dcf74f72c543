"""Which tables are read to their end before what is joined with them begins: pure.

Invariants: a source never waits for one that waits for it, nor for itself; a source waits only for
sources that end by themselves. While it waits it reads nothing and takes part in checkpoints, so
what waits for a table are no records in front of a barrier.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tidelog.runtime.source import Source
from tidelog.runtime.subtasks.vertices import Vertex


class Loading(NamedTuple):
    tables: Mapping[str, frozenset[str]]
    """The vertices that read a table first, with those that send them its rows."""
    awaited: Mapping[str, frozenset[str]]
    """The sources that wait, with the vertices whose data ends before they begin."""
    racing: Sequence[str]
    """The vertices whose tables have no end that could be awaited."""


def loading(vertices: Iterable[Vertex]) -> Loading:
    """What a job loads before it reads on."""
    tables: dict[str, frozenset[str]] = {}
    racing: list[str] = []
    awaited: dict[str, set[str]] = defaultdict(set)
    awaited_sources: dict[str, set[str]] = defaultdict(set)
    """By source, those that end before it begins."""
    for vertex in vertices:
        if not vertex.head.reads_table_first:
            continue
        senders = [upstream for upstream, edge in vertex.inputs if edge.side == 1]
        table = _sources(senders)
        records = _sources(upstream for upstream, edge in vertex.inputs if edge.side == 0)
        has_end = all(source.has_end for source in table.values())
        if not has_end or _with_awaited(table, awaited_sources) & records.keys():
            racing.append(vertex.id)
            continue
        tables[vertex.id] = frozenset(sender.id for sender in senders)
        for source in records:
            awaited[source] |= tables[vertex.id]
            awaited_sources[source] |= table.keys()
    return Loading(tables, {name: frozenset(ids) for name, ids in awaited.items()}, racing)


def _sources(vertices: Iterable[Vertex]) -> dict[str, Source]:
    """The sources of these vertices and of all in front of them."""
    pending, reached = list(vertices), dict[str, Vertex]()
    while pending:
        vertex = pending.pop()
        if vertex.id not in reached:
            reached[vertex.id] = vertex
            pending += [upstream for upstream, _ in vertex.inputs]
    sources = {name: vertex.head.source for name, vertex in reached.items()}
    return {name: source for name, source in sources.items() if source is not None}


def _with_awaited(sources: Iterable[str], awaited_sources: Mapping[str, set[str]]) -> set[str]:
    """These sources and all that they wait for."""
    reached: set[str] = set()
    pending = list(sources)
    while pending:
        source = pending.pop()
        if source not in reached:
            reached.add(source)
            pending += awaited_sources.get(source, ())
    return reached
