"""Types for the integers that could be swapped, and short names for subtasks and long texts.

Invariant: an integer that crosses a module border and counts something has its own type here.
"""

import hashlib
from typing import NamedTuple, NewType

SeqNo = NewType("SeqNo", int)
"""Number of changes one subtask has logged; a block holds changes [first, first + count)."""

KeyGroup = NewType("KeyGroup", int)
"""Index of a slice of the key space, 0 <= key group < number of key groups (at most 65536)."""

CheckpointId = NewType("CheckpointId", int)
"""Number of one checkpoint attempt within a job; grows by one per trigger, never reused."""

Slot = NewType("Slot", int)
"""Position in the create-once slot log."""

Generation = NewType("Generation", int)
"""One incarnation of a job: the slot number of its `start` entry, so it grows and is unique."""

MaterializationId = NewType("MaterializationId", int)
"""Number of one uploaded table snapshot of one subtask; independent of checkpoint ids."""


class SubtaskId(NamedTuple):
    """One subtask of an operator; of a chain of operators, that of the chain's first one."""

    operator: str
    subtask: int
    """Index of the subtask, 0 <= subtask < parallelism."""

    def __str__(self) -> str:
        return f"{self.operator}-{self.subtask}"


def digest(text: str) -> str:
    """16 digits that stand for a text, such as the URL of a store, in a name that must be short."""
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
