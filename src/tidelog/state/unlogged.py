"""State that no log makes durable: a table alone, or nothing but what an operator asks for."""

from tidelog.effects import Clock
from tidelog.state.backend import KeyedBackend
from tidelog.state.key_groups import KeyGroupRange
from tidelog.state.log import NoLog
from tidelog.state.registry import StateRegistry
from tidelog.table.port import Table


def backend_without_log(
    registry: StateRegistry,
    key_groups: int,
    owned: KeyGroupRange,
    table: Table,
    clock: Clock,
    *,
    reads_only: bool = False,
) -> KeyedBackend:
    """A backend whose changes reach the table only."""
    times = clock.now_ms, clock.monotonic
    return KeyedBackend(registry, key_groups, owned, table, NoLog(), *times, reads_only=reads_only)
