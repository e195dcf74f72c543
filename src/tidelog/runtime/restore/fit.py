"""Does a checkpoint fit a job? The first pass of a restore, and the plan of all three.

Invariants: nothing is fenced or changed before the plan is made; an operator whose end is part of
the checkpoint never handles a record again, or the job does not start.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from rocksdict import Cache

from tidelog.checkpoint.finished import fully_finished
from tidelog.checkpoint.formats import POSITIONS, TRANSACTIONS, check_formats
from tidelog.checkpoint.manifest import Checkpoint, OperatorState
from tidelog.effects import Effects
from tidelog.errors import RestoreError
from tidelog.runtime.channels.buffers import BufferLimit
from tidelog.runtime.config import JobConfig
from tidelog.runtime.graph import Job
from tidelog.runtime.in_flight.redistribution import no_such_edge
from tidelog.runtime.operators.chain import OperatorChain
from tidelog.runtime.operators.operator import OperatorContext
from tidelog.runtime.operators.turn import WorkTime
from tidelog.runtime.restore.choose import Operators, RestorePlan, Resumption, check_parallelism
from tidelog.runtime.restore.dropped import without_removed
from tidelog.runtime.restore.migration import migrates
from tidelog.runtime.restore.shares import empty, finished_subtasks, rechain, reshaped
from tidelog.runtime.subtasks.vertices import Vertex, compile_job, sink_types, source_types
from tidelog.runtime.user_code import user_code
from tidelog.state.backend import KeyedBackend
from tidelog.state.key_groups import range_of
from tidelog.state.log import NoLog
from tidelog.state.meaning import check_meaning
from tidelog.state.objects.classes import RecordTypes
from tidelog.state.registry import StateRegistry
from tidelog.table.memory import MemoryTable


def fit_checkpoint(
    job: Job, resumption: Resumption, restored: Checkpoint, config: JobConfig
) -> RestorePlan:
    """Plan how a job goes on from a checkpoint.

    Operators that records are in flight to keep tasks of their own, also where they would be
    chained now, and so do those after a finished one. Raises ConfigError, and RestoreError,
    StateSchemaError or SerializationError when job and checkpoint do not fit, FormatVersionError
    when a newer source or sink has written what the job's ones would have to read.
    """
    stored_operators = {operator.id: operator for operator in restored.operators}
    unchained = set(_first_unfinished(compile_job(job, config.parallelism), stored_operators))
    if not config.drop_in_flight:
        unchained |= _targets_in_flight(job, restored)
    vertices = compile_job(job, config.parallelism, unchained)
    check_parallelism(vertices, config)
    remaining, dropped = without_removed(
        stored_operators, vertices, config.allow_non_restored_state
    )
    _check_key_groups(remaining.values(), config)
    finished_ids = check_finished(vertices, remaining)
    rechained = rechain(remaining, vertices)
    operators: dict[str, OperatorState] = {}
    migrated: set[str] = set()
    for vertex in vertices:
        operator = rechained.get(vertex.id)
        if vertex.id in finished_ids and vertex.id not in remaining:
            # It had finished in the chain of another one, and has tasks of its own now.
            operator = (operator or empty(vertex, config.key_groups)).with_all(finished=True)
        if operator is None:
            continue
        check_formats(f"state of operator {vertex.id!r}", *_formats(vertex, operator))
        if not fully_finished(operator):
            if vertex.head.state is not None:
                registry = StateRegistry(operator.id, operator.states)
                registry.register(*vertex.head.state)
                registry.check_renamed(config.allow_non_restored_state)
            check_meaning(operator, vertex.head.meaning, config.allow_non_restored_state)
        if migrates(vertex.head, operator):
            migrated.add(vertex.id)
        operators[vertex.id] = reshaped(vertex, operator, config, anew=vertex.id in migrated)
    finished = finished_subtasks(vertices, operators, shared=not resumption.detached)
    return RestorePlan(resumption, vertices, operators, frozenset(migrated), finished, dropped)


def _formats(
    vertex: Vertex, operator: OperatorState
) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """Formats that source and sink of an operator have written, and those that they know: only
    where the job has them yet, for others have checks of their own.
    """
    same = {
        POSITIONS: operator.source_types[:1] == source_types(vertex)[:1],
        TRANSACTIONS: operator.sink_types[:1] == sink_types(vertex)[:1],
    }
    stored_formats = {
        kind: number for kind, number in operator.formats.items() if same.get(kind, True)
    }
    return stored_formats, vertex.formats


def _targets_in_flight(job: Job, restored: Checkpoint) -> set[str]:
    """The operators that records of a checkpoint are in flight to.

    Raises RestoreError for an input that the job does not have, and SerializationError for a type.
    """
    inputs = {node.id: len(node.inputs) for node in job.nodes}
    types = RecordTypes(job.record_types)
    targets: set[str] = set()
    for _, subtask in restored.subtasks():
        if subtask.in_flight is None:
            continue
        for operator, number in subtask.in_flight.inputs:
            if number >= inputs.get(operator, 0):
                raise no_such_edge(operator, number)
            targets.add(operator)
        for name in subtask.in_flight.types:
            types.check(name)
        if not subtask.in_flight.inputs:
            # Older releases did not store it: any operator that had tasks of its own.
            return {operator.id for operator in restored.operators}
    return targets


def _check_key_groups(operators: Iterable[OperatorState], config: JobConfig) -> None:
    for operator in operators:
        if operator.key_groups != config.key_groups:
            raise RestoreError(
                f"key groups of {operator.id!r} of the job",
                expected=f"{operator.key_groups}, as the checkpoint has it",
                found=str(config.key_groups),
                action=f"set --key-groups {operator.key_groups} (JobConfig.key_groups), and a "
                "parallelism of at most that: the first checkpoint has fixed them, or start with "
                "an empty store",
            )


def check_finished(vertices: Sequence[Vertex], stored_operators: Operators) -> set[str]:
    """The operators that have finished; raises RestoreError when one that has not lies before one
    of them.
    """
    finished_ids = _finished_operators(vertices, stored_operators)
    closed: set[str] = set()
    for vertex in vertices:
        unfinished = [node.id for node in vertex.nodes if node.id not in finished_ids]
        if len(unfinished) == len(vertex.nodes):
            continue
        finished = next(node.id for node in vertex.nodes if node.id in finished_ids)
        if unfinished:
            raise _in_the_way(unfinished[0], finished, "is chained to")
        if before := [upstream.id for upstream, _ in vertex.inputs if upstream.id not in closed]:
            raise _in_the_way(before[0], finished, "lies in front of")
        closed.add(vertex.id)
    return finished_ids


def _in_the_way(unfinished: str, finished: str, how: str) -> RestoreError:
    return RestoreError(
        f"operator {unfinished!r} {how} operator {finished!r}",
        expected=f"only finished operators there: {finished!r} has finished in the checkpoint, "
        "and will handle no record again",
        found="an operator that has not finished",
        action=f"take {unfinished!r} out or put it after operators that go on, restore one from "
        f"before {finished!r} finished, or start with an empty store",
    )


def _first_unfinished(vertices: Iterable[Vertex], stored_operators: Operators) -> Iterator[str]:
    """Operators that go on after finished ones in one chain: they need tasks of their own."""
    finished_ids = _finished_operators(vertices, stored_operators)
    for vertex in vertices:
        names = [node.id for node in vertex.nodes]
        unfinished = [name for name in names if name not in finished_ids]
        if unfinished and len(unfinished) < len(names) and names[-len(unfinished) :] == unfinished:
            yield unfinished[0]


def _finished_operators(vertices: Iterable[Vertex], stored_operators: Operators) -> set[str]:
    """All operators that have finished, whichever tasks they ran in then."""
    chains = {vertex.id: tuple(node.id for node in vertex.nodes) for vertex in vertices}
    finished_ids: set[str] = set()
    for operator in stored_operators.values():
        if fully_finished(operator):
            # Written before checkpoints named the chain: believed to be the job's.
            chain = chains.get(operator.id, ()) if operator.chain is None else operator.chain
            finished_ids |= {operator.id, *chain}
    return finished_ids


_CACHE_BYTES: Final = 1 << 20


def rehearse(plan: RestorePlan, config: JobConfig, effects: Effects) -> None:
    """Check what is known only once something is opened: operators whose states are not declared
    are opened once on an empty table and closed again.

    Raises StateSchemaError for states that do not go with the checkpoint, UserFunctionError when
    a processor cannot be made or its `init` fails, and ConfigError for an options file of RocksDB
    that cannot be used.
    """
    if config.rocksdb.options_file is not None:
        from tidelog.table.rocksdict_options import read_options_file  # noqa: PLC0415  # rare

        read_options_file(config.rocksdb.options_file, Cache(_CACHE_BYTES))
    for vertex in plan.vertices:
        operator = plan.operators.get(vertex.id)
        if operator is None or fully_finished(operator):
            continue
        if vertex.head.keyed and vertex.head.state is None:
            _open_once(vertex, plan.registry_of(vertex), config, effects)


def _open_once(
    vertex: Vertex, registry: StateRegistry, config: JobConfig, effects: Effects
) -> None:
    head, clock = vertex.head, effects.clock
    assert head.operator is not None
    backend = KeyedBackend(
        registry,
        config.key_groups,
        range_of(0, config.key_groups, vertex.parallelism),
        MemoryTable(),
        NoLog(),
        clock.now_ms,
        clock.monotonic,
    )
    with user_code(head.id):
        operator = head.operator()
    chain = OperatorChain([(head.id, operator)], WorkTime(clock), BufferLimit())
    try:
        chain.open(OperatorContext(clock, backend))
        registry.check_renamed(config.allow_non_restored_state)
    finally:
        chain.close()
