"""Checks what is known only once something is opened, before the running job is fenced: a start
that would be refused leaves that job alone.

Each operator whose states are not declared is opened once on an empty table and closed again.
"""

from typing import Final

from rocksdict import Cache

from tidelog.checkpoint.finished import fully_finished
from tidelog.effects import Effects
from tidelog.runtime.config import JobConfig
from tidelog.runtime.operators.chain import OperatorChain
from tidelog.runtime.operators.operator import OperatorContext
from tidelog.runtime.restore.plan import RestorePlan
from tidelog.runtime.subtasks.vertices import Vertex
from tidelog.runtime.tasks.worktime import WorkTime
from tidelog.runtime.user_code import blame
from tidelog.state.backend import KeyedBackend
from tidelog.state.key_groups import range_of
from tidelog.state.log import NoLog
from tidelog.state.registry import StateRegistry
from tidelog.table.memory import MemoryTable

_CACHE_BYTES: Final = 1 << 20


def rehearse(plan: RestorePlan, config: JobConfig, effects: Effects) -> None:
    """Raises StateSchemaError for states that do not go with the checkpoint, UserFunctionError when
    a processor cannot be made or its `init` fails, and ConfigError for an options file of RocksDB
    that cannot be used.
    """
    if config.rocksdb.options_file is not None:
        from tidelog.table.rocksdb_file import read_options_file  # noqa: PLC0415  # rare

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
    with blame(head.id):
        made = head.operator()
    chain = OperatorChain([(head.id, made)], WorkTime(clock))
    try:
        chain.open(OperatorContext(vertex.id, 0, vertex.parallelism, clock, backend))
        registry.check_renamed(config.allow_dropped_state)
    finally:
        chain.close()
