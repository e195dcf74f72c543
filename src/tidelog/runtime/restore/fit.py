"""Does a checkpoint fit a job, and which of its state does each subtask load?

Pure, and made before anything is fenced or changed. Invariants: a subtask gets the state of the
same operator and of the key groups it owns, and an operator whose end is part of the checkpoint
never handles a record again, or the job does not start.
"""

from collections.abc import Iterable, Iterator, Sequence

from tidelog.checkpoint.finished import as_finished, fully_finished, partially_finished, reopened
from tidelog.checkpoint.manifest import Checkpoint, OperatorState, SubtaskState
from tidelog.errors import RestoreError
from tidelog.ids import SubtaskId
from tidelog.runtime.config import JobConfig
from tidelog.runtime.graph import Job
from tidelog.runtime.in_flight.redistribution import no_such_edge
from tidelog.runtime.restore.choose import Resumption
from tidelog.runtime.restore.migration import migrates
from tidelog.runtime.restore.plan import Operators, RestorePlan
from tidelog.runtime.restore.rechain import empty, rechain
from tidelog.runtime.restore.removed import without_removed
from tidelog.runtime.subtasks.vertices import Vertex, compile_job
from tidelog.state.objects.classes import RecordTypes
from tidelog.state.registry import StateRegistry
from tidelog.state.restore.redistribute import redistribute, redistribute_operator_state


def fit_checkpoint(
    job: Job, resumption: Resumption, restored: Checkpoint, config: JobConfig
) -> RestorePlan:
    """Plan how a job goes on from a checkpoint.

    Operators that records are in flight to keep tasks of their own, also where they would be
    chained now, and so do those behind a finished one. Raises ConfigError, and RestoreError or
    UnstorableError when job and checkpoint do not fit.
    """
    stored = {operator.id: operator for operator in restored.operators}
    vertices = compile_job(job, config.parallelism)
    apart = set(_first_unfinished(vertices, stored))
    if not config.drop_in_flight:
        apart |= _on_their_way_to(job, restored)
    vertices = compile_job(job, config.parallelism, apart)
    for vertex in vertices:
        config.check_parallelism(vertex.id, vertex.parallelism)
    remaining = without_removed(stored, vertices, config.allow_dropped_state)
    going_on = _going_on(vertices, remaining.operators, config)
    operators: dict[str, OperatorState] = {}
    migrated: set[str] = set()
    for vertex in vertices:
        if vertex.id in going_on:
            operator = going_on[vertex.id]
            _check_states(vertex, operator, config)
            if migrates(vertex.head, operator):
                migrated.add(vertex.id)
            anew = vertex.id in migrated
            operators[vertex.id] = _reshaped(vertex, operator, config, anew=anew)
    return RestorePlan(
        resumption,
        vertices,
        operators,
        frozenset(migrated),
        _finished_subtasks(vertices, operators, shared=not resumption.detached),
        remaining.dropped,
    )


def _on_their_way_to(job: Job, restored: Checkpoint) -> set[str]:
    """The operators that records of a checkpoint are in flight to.

    Raises RestoreError for an input that the job does not have, and UnstorableError for a type.
    """
    inputs = {node.id: len(node.inputs) for node in job.nodes}
    types = RecordTypes(job.record_types)
    found: set[str] = set()
    for _, subtask in restored.subtasks():
        if subtask.in_flight is None:
            continue
        for operator, number in subtask.in_flight.inputs:
            if number >= inputs.get(operator, 0):
                raise no_such_edge(operator, number)
            found.add(operator)
        for name in subtask.in_flight.types:
            types.check(name)
        if not subtask.in_flight.inputs:
            # Older releases did not store it: any operator that had tasks of its own.
            return {operator.id for operator in restored.operators}
    return found


def _going_on(vertices: Sequence[Vertex], stored: Operators, config: JobConfig) -> Operators:
    """Stored operators by the vertices that go on with them.

    Raises RestoreError for those that do not fit.
    """
    for name, operator in stored.items():
        if operator.key_groups != config.key_groups:
            raise RestoreError(
                f"key groups of {name!r} of the job",
                expected=f"{operator.key_groups}, as the checkpoint has it",
                found=str(config.key_groups),
                action=f"set --key-groups {operator.key_groups} (JobConfig.key_groups), and a "
                "parallelism of at most that: the first checkpoint has fixed them, or start with "
                "an empty store",
            )
    check_finished(vertices, stored)
    going_on = rechain(stored, vertices)
    gone = _finished_operators(vertices, stored)
    for vertex in vertices:
        # It had finished in the chain of another one, and has tasks of its own now.
        if vertex.id not in stored and vertex.id in gone:
            operator = going_on.get(vertex.id) or empty(vertex, config.key_groups)
            going_on[vertex.id] = as_finished(operator)
    return going_on


def _check_states(vertex: Vertex, operator: OperatorState, config: JobConfig) -> None:
    """Raises StateSchemaError when the state that the vertex declares is not the stored one."""
    if vertex.head.state is not None and not fully_finished(operator):
        registry = StateRegistry(operator.id, operator.states)
        registry.register(*vertex.head.state)
        registry.check_renamed(config.allow_dropped_state)


def _reshaped(
    vertex: Vertex, operator: OperatorState, config: JobConfig, *, anew: bool
) -> OperatorState:
    """The operator with the subtasks that it has in the job; `anew`: its state is migrated."""
    table = config.table_of(keyed=vertex.head.keyed)
    # Migrated state is another than the log's, which must not be taken for its continuation.
    reshaped = redistribute(operator, vertex.parallelism, table, anew=anew)
    if reshaped is not operator and partially_finished(operator) and vertex.head.source is None:
        reshaped = reopened(reshaped)
    return redistribute_operator_state(operator, reshaped)


def _finished_subtasks(
    vertices: Iterable[Vertex], operators: Operators, *, shared: bool
) -> dict[SubtaskId, SubtaskState]:
    """The subtasks of restored operators that are not to run again.

    Where checkpoints to come cannot refer to what was restored, it not being `shared`, subtasks of
    a source run again whose positions they must hold: these say that there is nothing to read.
    """
    finished = {}
    for vertex in vertices:
        operator = operators.get(vertex.id)
        if operator is None or (not shared and vertex.head.source and not fully_finished(operator)):
            continue
        for subtask in operator.subtasks:
            if subtask.finished:
                finished[SubtaskId(vertex.id, subtask.index)] = subtask
    return finished


def check_finished(vertices: Sequence[Vertex], stored: Operators) -> None:
    """Raises RestoreError when an operator that is not finished lies before one that is."""
    gone = _finished_operators(vertices, stored)
    over: set[str] = set()
    for vertex in vertices:
        fresh = [node.id for node in vertex.nodes if node.id not in gone]
        if len(fresh) == len(vertex.nodes):
            continue
        finished = next(node.id for node in vertex.nodes if node.id in gone)
        if fresh:
            raise _in_the_way(fresh[0], finished, "is chained to")
        if before := [upstream.id for upstream, _ in vertex.inputs if upstream.id not in over]:
            raise _in_the_way(before[0], finished, "lies in front of")
        over.add(vertex.id)


def _in_the_way(fresh: str, finished: str, how: str) -> RestoreError:
    return RestoreError(
        f"operator {fresh!r} {how} operator {finished!r}",
        expected=f"only finished operators there: {finished!r} has finished in the checkpoint, "
        "and will handle no record again",
        found="an operator that has not finished",
        action=f"take {fresh!r} out or put it behind operators that go on, restore a slot from "
        f"before {finished!r} finished, or start with an empty store",
    )


def _first_unfinished(vertices: Iterable[Vertex], stored: Operators) -> Iterator[str]:
    """Operators that go on behind finished ones in one chain: they need tasks of their own."""
    gone = _finished_operators(vertices, stored)
    for vertex in vertices:
        names = [node.id for node in vertex.nodes]
        left = [name for name in names if name not in gone]
        if left and len(left) < len(names) and names[-len(left) :] == left:
            yield left[0]


def _finished_operators(vertices: Iterable[Vertex], stored: Operators) -> set[str]:
    """All operators that have finished, whichever tasks they ran in then."""
    chains = {vertex.id: tuple(node.id for node in vertex.nodes) for vertex in vertices}
    gone: set[str] = set()
    for operator in stored.values():
        if fully_finished(operator):
            # Written before checkpoints named the chain: believed to be the job's.
            chain = chains.get(operator.id, ()) if operator.chain is None else operator.chain
            gone |= {operator.id, *chain}
    return gone
