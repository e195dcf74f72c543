"""View `checkpoints` of a store: its slots, one part each.

Invariant: a slot that cannot be read is a row that says why; one that a running job drops
meanwhile is no row.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidelog.checkpoint.inventory import list_slots
from tidelog.checkpoint.manifest import Checkpoint, Savepoint, decode_slot
from tidelog.errors import CorruptObjectError, FormatVersionError, ObjectNotFoundError
from tidelog.ids import Slot
from tidelog.spark.source import frames
from tidelog.spark.source.parts import Part, Request, Task
from tidelog.storage import paths
from tidelog.storage.port import ObjectStore

if TYPE_CHECKING:
    import pyarrow as pa


async def plan(store: ObjectStore, request: Request) -> Sequence[Part]:
    """A part per slot; raises what the store raises."""
    sizes = await list_slots(store)
    return [SlotPart(slot, size) for slot, size in sizes.items() if request.wanted.has(slot=slot)]


@dataclass(frozen=True, slots=True)
class SlotPart:
    """One slot and the size of its object in bytes."""

    slot: Slot
    size: int

    def read(self, task: Task) -> Iterator["pa.RecordBatch"]:
        """The row of the slot."""
        name = paths.checkpoint(self.slot)
        try:
            row = _fields(task.session.run(task.session.store.get(name)), self.slot)
        except ObjectNotFoundError:
            return
        except (CorruptObjectError, FormatVersionError) as error:
            row = {"kind": "unreadable", "error": str(error)}
        row |= {"slot": self.slot, "manifest_bytes": self.size}
        yield frames.from_rows(task.request.columns, [row])


def _fields(data: bytes, slot: Slot) -> dict[str, Any]:
    entry = decode_slot(data, slot)
    row = {
        "kind": "start",
        "generation": entry.author.generation,
        "created": entry.created_ms * 1000,
        "job": entry.job,
    }
    if not isinstance(entry, Checkpoint):
        return row
    states = [state for _, state in entry.subtasks()]
    return row | {
        "kind": "savepoint" if isinstance(entry, Savepoint) else "checkpoint",
        "checkpoint_id": entry.checkpoint_id,
        "final": entry.final,
        "operators": len(entry.operators),
        "subtasks": len(states),
        "log_bytes": sum(part.length for state in states for part in state.log),
        "materialized_bytes": sum(
            state.materialization.table_bytes for state in states if state.materialization
        ),
        "inline_bytes": sum(len(data) for state in states for data in state.inline),
    }
