"""The second pass of a restore: does the checkpoint fit the job?

Invariants: nothing is fenced or changed before it is known; an operator whose end is part of the
checkpoint never handles a record again, or the job does not start.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import msgspec
from rocksdict import Cache

from tidelog.checkpoint.finished import finished_operators, fully_finished
from tidelog.checkpoint.formats import POSITIONS, TRANSACTIONS, check_formats
from tidelog.checkpoint.manifest import Checkpoint, OperatorState
from tidelog.effects import Clock
from tidelog.errors import RestoreError
from tidelog.runtime.channels.buffers import BufferLimit
from tidelog.runtime.config import JobConfig
from tidelog.runtime.graph import Job
from tidelog.runtime.in_flight.redistribution import no_such_edge
from tidelog.runtime.node import Node
from tidelog.runtime.operators.chain import OperatorChain
from tidelog.runtime.operators.operator import OperatorContext
from tidelog.runtime.operators.turn import WorkTime
from tidelog.runtime.restore.choose import RestorePlan
from tidelog.runtime.restore.migrate import migrates
from tidelog.runtime.subtasks.vertices import Vertex, sink_types, source_types
from tidelog.runtime.user_code import user_code
from tidelog.state.key_groups import range_of
from tidelog.state.meaning import check_meaning
from tidelog.state.objects.classes import RecordTypes
from tidelog.state.registry import StateMigration, StateRegistry
from tidelog.state.unlogged import backend_without_log
from tidelog.table.memory import MemoryTable


def chain_heads(job: Job, checkpoint: Checkpoint, config: JobConfig) -> set[str]:
    """Operators that have tasks of their own, also where they would be chained otherwise: those
    that go on after a finished one, and those that records are in flight to.

    Raises RestoreError for records to an input that the job does not have, and SerializationError
    for a type.
    """
    finished_ids = finished_operators(checkpoint.operators)
    heads: set[str] = set()
    for node in job.nodes:
        for edge in node.inputs:
            if node.id not in finished_ids and edge.node.id in finished_ids:
                heads.add(node.id)
    if config.drop_in_flight:
        return heads
    return heads | _targets_in_flight(job, checkpoint)


def _targets_in_flight(job: Job, checkpoint: Checkpoint) -> set[str]:
    """The operators that records of a checkpoint are in flight to."""
    inputs = {node.id: len(node.inputs) for node in job.nodes}
    types = RecordTypes(job.record_types)
    targets: set[str] = set()
    for _, subtask in checkpoint.subtasks():
        if subtask.in_flight is None:
            continue
        for operator, number in subtask.in_flight.inputs:
            if number >= inputs.get(operator, 0):
                raise no_such_edge(operator, number)
            targets.add(operator)
        for name in subtask.in_flight.types:
            types.check(name)
    return targets


def fit(plan: RestorePlan, config: JobConfig) -> RestorePlan:
    """The plan with the vertices whose state is migrated.

    Raises RestoreError, StateSchemaError and FormatVersionError where the job cannot go on with
    what the checkpoint has of its operators.
    """
    _check_key_groups(plan.operators.values(), config)
    check_finished(plan.vertices, finished_operators(plan.operators.values()))
    migrated: set[str] = set()
    for vertex in plan.vertices:
        operator = plan.operators.get(vertex.id)
        if operator is None:
            continue
        formats = _formats(vertex, operator)
        check_formats(f"state of operator {vertex.id!r}", formats, vertex.formats)
        if fully_finished(operator):
            continue
        if vertex.head.state is not None:
            registry = StateRegistry(operator.id, operator.states)
            registry.register(*vertex.head.state)
            registry.check_renamed(config.allow_non_restored_state)
        check_meaning(operator, vertex.head.meaning, config.allow_non_restored_state)
        if migrates(vertex.head, operator):
            migrated.add(vertex.id)
    return msgspec.structs.replace(plan, migrated=frozenset(migrated))


def _formats(vertex: Vertex, operator: OperatorState) -> Mapping[str, int]:
    """Formats that source and sink of an operator have written, as far as the job has them yet:
    others have checks of their own.
    """
    formats = dict(operator.formats)
    if operator.source_types[:1] != source_types(vertex)[:1]:
        formats.pop(POSITIONS, None)
    if operator.sink_types[:1] != sink_types(vertex)[:1]:
        formats.pop(TRANSACTIONS, None)
    return formats


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


def check_finished(vertices: Sequence[Vertex], finished_ids: Collection[str]) -> None:
    """Raises RestoreError when an operator that has not finished lies before one that has."""
    finished_vertices: set[str] = set()
    for vertex in vertices:
        finished: list[str] = []
        unfinished: list[str] = []
        for node in vertex.nodes:
            (finished if node.id in finished_ids else unfinished).append(node.id)
        if not finished:
            continue
        if unfinished:
            raise _in_the_way(unfinished[0], finished[0], "is chained to")
        for upstream, _ in vertex.inputs:
            if upstream.id not in finished_vertices:
                raise _in_the_way(upstream.id, finished[0], "lies in front of")
        finished_vertices.add(vertex.id)


def _in_the_way(unfinished: str, finished: str, how: str) -> RestoreError:
    return RestoreError(
        f"operator {unfinished!r} {how} operator {finished!r}",
        expected=f"only finished operators there: {finished!r} has finished in the checkpoint, "
        "and will handle no record again",
        found="an operator that has not finished",
        action=f"take {unfinished!r} out or put it after operators that go on, restore one from "
        f"before {finished!r} finished, or start with an empty store",
    )


_CACHE_BYTES: Final = 1 << 20


def check_options_file(config: JobConfig) -> None:
    """Raises ConfigError for an options file of RocksDB that cannot be used."""
    if config.rocksdb.options_file is not None:
        from tidelog.table.rocksdict_options import read_options_file  # noqa: PLC0415  # rare

        read_options_file(config.rocksdb.options_file, Cache(_CACHE_BYTES))


def rehearse(plan: RestorePlan, config: JobConfig, clock: Clock) -> RestorePlan:
    """The plan with the states that processors migrate, which is known only once they are opened:
    operators whose states are not declared are opened once on an empty table and closed again.

    Raises StateSchemaError for states that do not go with the checkpoint, UserFunctionError when
    a processor cannot be made or its `init` fails.
    """
    migrations: dict[str, Sequence[StateMigration]] = {}
    allowed = config.allow_non_restored_state
    for vertex in plan.vertices:
        operator = plan.operators.get(vertex.id)
        if operator is None or fully_finished(operator):
            continue
        if vertex.head.keyed and vertex.head.state is None:
            rehearsal = plan.rehearsal_of(vertex, operator)
            open_once(vertex.head, rehearsal, config.key_groups, clock, allowed)
            if rehearsal.migrations:
                migrations[vertex.id] = tuple(rehearsal.migrations.values())
    migrated = plan.migrated | migrations.keys()
    return msgspec.structs.replace(plan, migrated=migrated, migrations=migrations)


def open_once(
    node: Node,
    registry: StateRegistry,
    key_groups: int,
    clock: Clock,
    allowed: Collection[str] = (),
) -> None:
    """Open an operator on an empty table and close it again: then the registry has its states.

    Raises StateSchemaError for states that do not go with those that the registry had, but for
    `allowed` ones, and UserFunctionError.
    """
    assert node.operator is not None
    owned = range_of(0, key_groups, 1)
    backend = backend_without_log(registry, key_groups, owned, MemoryTable(), clock)
    with user_code(node.id):
        operator = node.operator()
    chain = OperatorChain([(node.id, operator)], WorkTime(clock), BufferLimit())
    try:
        chain.open(OperatorContext(clock, backend))
        registry.check_renamed(allowed)
    finally:
        chain.close()
