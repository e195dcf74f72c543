"""May a job of this shape go on where operators have finished? A pure comparison.

Invariant: an operator whose end is part of a checkpoint is never asked to handle a record again;
a job in which it would have to be is refused before anything is fenced or changed.
"""

from collections.abc import Iterable, Mapping, Sequence

from tidelog.checkpoint.finished import fully_finished
from tidelog.checkpoint.manifest import OperatorState
from tidelog.errors import RestoreError
from tidelog.runtime.graph import Vertex


def check_finished(vertices: Sequence[Vertex], stored: Mapping[str, OperatorState]) -> None:
    """Raises RestoreError when an operator that is not finished lies before one that is."""
    gone = _finished_operators(vertices, stored)
    over: set[str] = set()
    for vertex in vertices:
        fresh = [node.id for node in vertex.nodes if node.id not in gone]
        if len(fresh) == len(vertex.nodes):
            continue
        (finished, *_) = [node.id for node in vertex.nodes if node.id in gone]
        if fresh:
            raise _in_the_way(fresh[0], finished, "is chained to")
        if before := [upstream.id for upstream, _ in vertex.inputs if upstream.id not in over]:
            raise _in_the_way(before[0], finished, "lies in front of")
        over.add(vertex.id)


def _finished_operators(
    vertices: Iterable[Vertex], stored: Mapping[str, OperatorState]
) -> set[str]:
    """All operators that have finished, whichever tasks they ran in then."""
    chains = {vertex.id: tuple(node.id for node in vertex.nodes) for vertex in vertices}
    gone: set[str] = set()
    for operator in stored.values():
        if fully_finished(operator):
            # Written before checkpoints named the chain: believed to be the job's.
            chain = chains.get(operator.id, ()) if operator.chain is None else operator.chain
            gone |= {operator.id, *chain}
    return gone


def _in_the_way(fresh: str, finished: str, how: str) -> RestoreError:
    return RestoreError(
        f"operator {fresh!r} {how} operator {finished!r}",
        expected=f"only finished operators there: {finished!r} has finished in the checkpoint, "
        "and will handle no record again",
        found="an operator that has not finished",
        action=f"take {fresh!r} out or put it behind operators that go on, restore a slot from "
        f"before {finished!r} finished, or start with an empty store",
    )
