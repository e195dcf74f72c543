"""Whether the tables of an operator serve before they are whole; a start decides it: pure.

Invariant: whatever is decided, rows and results are the same.
"""

from typing import TYPE_CHECKING

from tidelog.checkpoint.manifest import SubtaskState
from tidelog.runtime.subtasks.start import JobStart
from tidelog.runtime.subtasks.vertices import Vertex
from tidelog.state.recovery.reads import SCANNED_AT_THE_START
from tidelog.table.port import TableFactory

if TYPE_CHECKING:
    from collections.abc import Iterable


def is_small(start: JobStart, states: "Iterable[SubtaskState]") -> bool:
    """Whether the tables that a process loads are so small that they are loaded whole first."""
    sizes: dict[str, int] = {}
    for state in states:
        for ref in state.materializations:
            sizes[ref.descriptor] = ref.table_bytes
    return sum(sizes.values()) <= start.config.restore.whole_bytes


def refusal(start: JobStart, vertex: Vertex, factory: TableFactory) -> str | None:
    """Why an operator's tables are loaded whole before its job begins; None: they serve at once."""
    resumption = start.plan.resumption
    kinds = {info.kind for info in start.registries[vertex.id].infos()}
    reasons = {
        f"tables of kind {factory.kind!r} are read whole": factory.serve is None,
        "its first checkpoint uploads all of its tables": resumption.detached
        or resumption.origin is not None
        or not start.config.changelog,
        "its keys or values are migrated": vertex.id in start.plan.migrated,
        "it looks through its rows before its first record": bool(kinds & SCANNED_AT_THE_START),
    }
    return next((reason for reason, holds in reasons.items() if holds), None)
