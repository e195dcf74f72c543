"""The audit: every invariant checked against a store, for `tidelog inspect`.

Invariants: nothing is written; damage is a finding, never an error; a checkpoint counts as
restorable only when no finding concerns what it needs. With `deep` that is certain, without it
the bytes of segments and table files are taken on trust.
"""

from collections import defaultdict
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from tidelog.catalog.inventory import Inventory, Slots, read_inventory, read_slots
from tidelog.changelog.reader import SegmentReader
from tidelog.changelog.segment import LogRange
from tidelog.checkpoint.descriptor import TableObject
from tidelog.checkpoint.finding import UNREADABLE, Finding, Findings, without_changes
from tidelog.checkpoint.invariants import (
    descriptor_violations,
    manifest_violations,
    object_violations,
    slot_violations,
    unreadable,
)
from tidelog.checkpoint.manifest import Checkpoint, InheritedState, MaterializationRef, Savepoint
from tidelog.checkpoint.retention import subtask_objects
from tidelog.concurrency import Progress, gather_bounded, no_progress
from tidelog.errors import OLDER_CHECKPOINT
from tidelog.ids import Slot, SubtaskId
from tidelog.storage import object_names
from tidelog.storage.port import ObjectStore

SlotKind = Literal["start", "move", "checkpoint", "savepoint", "unreadable"]


@dataclass(frozen=True, slots=True)
class SlotVerdict:
    """What is stored under a number; `restorable` is None for a start."""

    checkpoint: Slot
    kind: SlotKind
    restorable: bool | None


@dataclass(frozen=True, slots=True)
class AuditReport:
    """What an audit found; `objects` and `bytes` count the data objects stored."""

    checkpoints: tuple[SlotVerdict, ...]
    problems: tuple[Finding, ...]
    objects: int
    bytes: int

    @property
    def newest_restorable(self) -> Slot | None:
        """The newest checkpoint that no problem concerns."""
        return _newest_restorable(self.checkpoints)


def advised(
    problems: Iterable[Finding], verdicts: Sequence[SlotVerdict], *, running: bool
) -> tuple[Finding, ...]:
    """The problems, each with what to do next, where `running` says that a job on the store runs
    here. All of them together decide which checkpoint can be restored.
    """
    newest = _newest_restorable(verdicts)
    latest = None
    for verdict in verdicts:
        if verdict.restorable is not None:
            latest = verdict.checkpoint
    advised_problems = []
    for problem in problems:
        action = _next_step(problem, newest, latest, running=running)
        advised_problems.append(replace(problem, action=action))
    return tuple(advised_problems)


_CANONICAL: Final = "(`tidelog savepoint URL --format canonical`)"


def _next_step(finding: Finding, newest: Slot | None, latest: Slot | None, *, running: bool) -> str:
    """What to do about a finding; `newest` can be restored, `latest` is the newest of all."""
    if finding.newer_format:
        return "use the tidelog release that wrote it, or a newer one"
    if not finding.unusable:
        return "find out what else writes or deletes objects under this URL"
    restore = "no other checkpoint can be restored"
    if newest is not None:
        restore = (
            f"or restore checkpoint {newest} (`tidelog run ... --restore-checkpoint {newest}`)"
        )
    otherwise = f"bring the object back from a backup{';' if newest is None else ','} {restore}"
    if latest not in finding.unusable:
        return otherwise
    if running:
        return (
            f"take a canonical savepoint before you stop the job {_CANONICAL}: it runs, and has "
            "all rows on its own disk"
        )
    return (
        "if the job still runs, on another machine, take a canonical savepoint of it before you "
        f"stop it {_CANONICAL}; otherwise {otherwise}"
    )


async def audit(
    store: ObjectStore, *, deep: bool = False, progress: Progress = no_progress
) -> AuditReport:
    """Check a store; `deep` reads every segment range and table file and checks its CRC.

    Raises ObjectNotFoundError when no job has written there, and what the store raises.
    """
    inventory = await read_inventory(store, progress)
    findings = inventory_findings(inventory)
    if deep:
        await _check_bytes(store, inventory, findings, progress)
    slots = inventory.slots
    if findings.all():  # a running job may have dropped some of them
        slots = await read_slots(store, earlier=slots)
    return _report(inventory, findings, slots.sizes)


def inventory_findings(inventory: Inventory, starts: Container[Slot] = ()) -> Findings:
    """All that is wrong as far as slots, descriptors and the sizes of objects tell.

    An unreadable slot costs a checkpoint unless it is among `starts`.
    """
    findings, slots = Findings(), inventory.slots
    for slot, error in slots.unreadable.items():
        costs = () if slot in starts else (slot,)
        findings.add([replace(unreadable(object_names.checkpoint(slot), error), unusable=costs)])
    # These may as well be the fault of another slot, and cost nothing.
    findings.add(slot_violations(slots.entries, slots.unreadable, inventory.sizes))
    for slot, checkpoint in slots.checkpoints.items():
        for finding in _checkpoint_findings(inventory, checkpoint):
            findings.add([replace(finding, unusable=(slot,))])
    return findings


async def _check_bytes(
    store: ObjectStore, inventory: Inventory, findings: Findings, progress: Progress
) -> None:
    """Read what all checkpoints refer to, each part once."""
    users: dict[LogRange | TableObject, set[Slot]] = {}
    for slot, checkpoint in inventory.slots.checkpoints.items():
        for _, subtask in checkpoint.stored_subtasks():
            parts: list[LogRange | TableObject] = list(subtask.ranges)
            for name in subtask_objects(subtask):
                descriptor = inventory.descriptors.get(name)
                parts += descriptor.shared if descriptor is not None else ()
            for part in parts:
                users.setdefault(part, set()).add(slot)
    reader = SegmentReader(store)

    async def check(part: LogRange | TableObject) -> None:
        name = part.segment if isinstance(part, LogRange) else part.object
        if name not in inventory.sizes:
            return  # Found missing already.
        try:
            if isinstance(part, LogRange):
                await reader.read_range(part)
            else:
                part.check(await store.get(part.object), OLDER_CHECKPOINT)
        except UNREADABLE as error:
            findings.add([replace(unreadable(name, error), unusable=tuple(sorted(users[part])))])

    await gather_bounded(users, check, progress)


def _report(inventory: Inventory, findings: Findings, present: Collection[Slot]) -> AuditReport:
    """Sum up, without what a running job changed meanwhile: `present` are the slots after it."""
    slots = inventory.slots
    problems = tuple(without_changes(findings.all(), slots.sizes, present))
    return AuditReport(
        tuple(verdict for verdict in verdicts_on(slots, problems) if verdict.checkpoint in present),
        problems,
        len(inventory.sizes),
        sum(inventory.sizes.values()),
    )


def verdicts_on(slots: Slots, problems: Iterable[Finding]) -> list[SlotVerdict]:
    """Whether each slot can be restored, by all problems of the store; in ascending order."""
    unusable: set[int] = set()
    for problem in problems:
        unusable.update(problem.unusable)
    return [_verdict(slots, slot, unusable) for slot in sorted(slots.sizes)]


def _newest_restorable(verdicts: Iterable[SlotVerdict]) -> Slot | None:
    return max((verdict.checkpoint for verdict in verdicts if verdict.restorable), default=None)


def _verdict(slots: Slots, slot: Slot, unusable: Container[int]) -> SlotVerdict:
    entry = slots.entries.get(slot)
    if isinstance(entry, Checkpoint):
        kind: SlotKind = "savepoint" if isinstance(entry, Savepoint) else "checkpoint"
        return SlotVerdict(slot, kind, slot not in unusable)
    if entry is None:
        return SlotVerdict(slot, "unreadable", False)
    return SlotVerdict(slot, "move" if entry.moved_to else "start", None)


def _checkpoint_findings(inventory: Inventory, checkpoint: Checkpoint) -> Iterator[Finding]:
    """All findings about a checkpoint; each makes it unusable."""
    yield from manifest_violations(checkpoint)
    for operator, subtask in checkpoint.stored_subtasks():
        owner = SubtaskId(operator.id, subtask.index)
        for layer in subtask.layers:
            if layer.materialization is not None:
                for finding in _layer_findings(inventory, owner, layer, layer.materialization):
                    yield replace(finding, partitions=(str(owner),))
    owners = _owners(inventory, checkpoint)
    for finding in object_violations(inventory.needs(checkpoint), inventory.sizes):
        yield replace(finding, partitions=tuple(sorted(map(str, owners[finding.where]))))


def _layer_findings(
    inventory: Inventory, owner: SubtaskId, layer: InheritedState, ref: MaterializationRef
) -> Iterator[Finding]:
    descriptor = inventory.descriptors.get(ref.descriptor)
    error = inventory.unreadable.get(ref.descriptor)
    if descriptor is not None:
        yield from descriptor_violations(owner.operator, layer, ref, descriptor)
    # One that is missing, or has another size, is among the objects.
    elif error is not None and inventory.sizes.get(ref.descriptor) == ref.size:
        yield unreadable(ref.descriptor, error)


def _owners(inventory: Inventory, checkpoint: Checkpoint) -> Mapping[str, set[SubtaskId]]:
    """The subtasks of a checkpoint that need an object, by the object's name."""
    owners: dict[str, set[SubtaskId]] = defaultdict(set)
    for operator, subtask in checkpoint.stored_subtasks():
        names = set(subtask_objects(subtask))
        for name in [*names]:
            if name in inventory.descriptors:
                names.update(inventory.descriptors[name].shared_bytes)
        for name in names:
            owners[name].add(SubtaskId(operator.id, subtask.index))
    return owners
