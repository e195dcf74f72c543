"""The audit: every invariant checked against a store, for `tidelog inspect`.

Invariants: nothing is written; damage is a finding, never an error; a checkpoint counts as
restorable only when no finding concerns what it needs. With `deep` that is certain, without it
the bytes of segments and table files are taken on trust.
"""

from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from typing import Literal

from tidelog.checkpoint.bounded import Progress, gather_bounded, no_progress
from tidelog.checkpoint.findings import checkpoint_findings
from tidelog.checkpoint.invariants import Violation, readable_violation, slot_violations
from tidelog.checkpoint.inventory import Inventory, Slots, list_slots, read_inventory
from tidelog.checkpoint.manifest import Checkpoint, Savepoint, TableObject
from tidelog.checkpoint.retention import subtask_objects
from tidelog.checkpoint.table_file import check_table_file
from tidelog.dstl.reader import SegmentReader
from tidelog.dstl.segment import LogRange
from tidelog.errors import (
    CorruptObjectError,
    FormatVersionError,
    ObjectNotFoundError,
    RestoreError,
    TidelogError,
)
from tidelog.ids import CheckpointId, Slot
from tidelog.storage import paths
from tidelog.storage.port import ObjectStore

_UNREADABLE = (CorruptObjectError, FormatVersionError, ObjectNotFoundError, RestoreError)

SlotKind = Literal["start", "checkpoint", "savepoint", "unreadable"]


@dataclass(frozen=True, slots=True)
class Problem:
    """A violation and the checkpoint slots it makes unusable."""

    violation: Violation
    slots: tuple[Slot, ...]
    newer_format: bool = False
    """The object was written by a newer release; it need not be damaged."""


@dataclass(frozen=True, slots=True)
class SlotVerdict:
    """A slot; `restorable` is None for a start."""

    slot: Slot
    kind: SlotKind
    checkpoint_id: CheckpointId | None
    restorable: bool | None


@dataclass(frozen=True, slots=True)
class AuditReport:
    """What an audit found; `objects` and `bytes` count the data objects stored."""

    slots: tuple[SlotVerdict, ...]
    problems: tuple[Problem, ...]
    objects: int
    bytes: int

    @property
    def newest_restorable(self) -> Slot | None:
        """The newest checkpoint that no problem concerns."""
        return max((verdict.slot for verdict in self.slots if verdict.restorable), default=None)


@dataclass(slots=True)
class _Findings:
    """Violations with the slots they concern, each once."""

    slots: dict[Violation, set[Slot]] = field(default_factory=dict)
    newer: set[Violation] = field(default_factory=set)

    def add(self, violations: Iterable[Violation], *slots: Slot) -> None:
        for violation in violations:
            self.slots.setdefault(violation, set()).update(slots)

    def add_error(self, where: str, error: TidelogError, *slots: Slot) -> None:
        violation = readable_violation(where, error)
        self.add([violation], *slots)
        if isinstance(error, FormatVersionError):
            self.newer.add(violation)


async def audit(
    store: ObjectStore, *, deep: bool = False, progress: Progress = no_progress
) -> AuditReport:
    """Check a store; `deep` reads every segment range and table file and checks its CRC.

    Raises ObjectNotFoundError when the store has no slots, and what the store raises.
    """
    inventory = await read_inventory(store, progress)
    findings = _Findings()
    _check_slots(inventory, findings)
    for slot, checkpoint in inventory.slots.checkpoints.items():
        _check_checkpoint(inventory, slot, checkpoint, findings)
    if deep:
        await _check_bytes(store, inventory, findings, progress)
    present = await list_slots(store) if findings.slots else inventory.slots.sizes
    return _report(inventory, findings, present)


def _check_slots(inventory: Inventory, findings: _Findings) -> None:
    slots = inventory.slots
    for slot, error in slots.unreadable.items():
        findings.add_error(paths.checkpoint(slot), error, slot)
    findings.add(slot_violations(slots.entries, slots.unreadable, inventory.sizes))


def _check_checkpoint(
    inventory: Inventory, slot: Slot, checkpoint: Checkpoint, findings: _Findings
) -> None:
    for found in checkpoint_findings(inventory, checkpoint):
        if found.error is not None:
            findings.add_error(found.violation.where, found.error, slot)
        else:
            findings.add([found.violation], slot)


async def _check_bytes(
    store: ObjectStore, inventory: Inventory, findings: _Findings, progress: Progress
) -> None:
    """Read what all checkpoints refer to, each part once."""
    users: dict[LogRange | TableObject, set[Slot]] = {}
    for slot, checkpoint in inventory.slots.checkpoints.items():
        for _, subtask in checkpoint.subtasks():
            parts: list[LogRange | TableObject] = list(subtask.ranges)
            for name in subtask_objects(subtask):
                descriptor = inventory.descriptors.get(name)
                parts += descriptor.shared if descriptor is not None else ()
            for part in parts:
                users.setdefault(part, set()).add(slot)
    reader = SegmentReader(store, cache_bytes=0)

    async def check(part: LogRange | TableObject) -> None:
        name = part.segment if isinstance(part, LogRange) else part.object
        if name not in inventory.sizes:
            return  # Found missing already.
        try:
            if isinstance(part, LogRange):
                await reader.read_range(part)
            else:
                check_table_file(part, await store.get(part.object), "restore an older slot")
        except _UNREADABLE as error:
            findings.add_error(name, error, *users[part])

    await gather_bounded(users, check, progress)


def _report(inventory: Inventory, findings: _Findings, present: Container[Slot]) -> AuditReport:
    """Sum up, without what a running job changed meanwhile: `present` are the slots after it all.

    A checkpoint that is gone by now takes its objects with it; a start that appeared is no gap.
    """
    slots = inventory.slots
    before = {paths.checkpoint(slot) for slot in slots.sizes}
    problems = []
    for violation, concerned in findings.slots.items():
        left = tuple(sorted(slot for slot in concerned if slot in present))
        where = paths.slot_of(violation.where)
        appeared = where is not None and where in present and violation.where not in before
        if not appeared and (left or not concerned):
            problems.append(Problem(violation, left, violation in findings.newer))
    unusable = {slot for problem in problems for slot in problem.slots}
    return AuditReport(
        tuple(_verdict(slots, slot, unusable) for slot in sorted(slots.sizes) if slot in present),
        tuple(problems),
        len(inventory.sizes),
        sum(inventory.sizes.values()),
    )


def _verdict(slots: Slots, slot: Slot, unusable: Container[Slot]) -> SlotVerdict:
    entry = slots.entries.get(slot)
    if isinstance(entry, Checkpoint):
        kind: SlotKind = "savepoint" if isinstance(entry, Savepoint) else "checkpoint"
        return SlotVerdict(slot, kind, entry.checkpoint_id, slot not in unusable)
    if entry is None:
        return SlotVerdict(slot, "unreadable", None, False)
    return SlotVerdict(slot, "start", None, None)
