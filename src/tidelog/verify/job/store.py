"""What there is to verify in a store of a job, and what its slots, descriptors and listing show.

Invariant: structural findings are a pure function of the inventory; every checkpoint that a finding
costs is named in it.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise

from tidelog.catalog.audit import inventory_findings
from tidelog.catalog.inventory import Inventory, Slots, read_inventory, read_slots
from tidelog.checkpoint.finding import Finding, Findings
from tidelog.checkpoint.manifest import Checkpoint, is_canonical
from tidelog.checkpoint.slots import named_checkpoints
from tidelog.concurrency import Progress
from tidelog.errors import RestoreError
from tidelog.ids import SeqNo, Slot, SubtaskId
from tidelog.options.units import plural
from tidelog.storage import object_names
from tidelog.storage.port import ObjectStore
from tidelog.verify.job.plan import Partition, plan
from tidelog.verify.results import (
    CheckName,
    Choice,
    PathResult,
    Settled,
    UnitResult,
    WorkUnits,
    choose,
)


async def read_job(
    store: ObjectStore, chosen: Choice, workers: int, progress: Progress
) -> WorkUnits:
    """The work on the chosen checkpoints for so many workers; raises as `verification.verify`."""
    inventory = await read_inventory(store, progress)
    slots = inventory.slots
    names = named_checkpoints(slots.checkpoints.values())
    # Of an unreadable slot it is not known whether it holds a checkpoint.
    names |= dict.fromkeys(slots.unreadable.keys() - _known_starts(inventory))
    if not names:
        raise RestoreError(
            f"store {store.url}",
            expected="a checkpoint",
            found=f"unreadable checkpoints: {[*slots.unreadable]}"
            if slots.unreadable
            else "starts only",
            action="let the job complete its first checkpoint",
        )
    numbers = choose(names, chosen, "checkpoint", store.url, "tidelog checkpoints list")
    findings = structural_findings(inventory).without_repeats()
    partitions, units = plan(inventory, findings, [*map(Slot, numbers)], workers)
    return WorkUnits(
        checkpoints=numbers,
        listed=slots.sizes,
        # What costs others alone is not known of all kinds of damage: those are not read.
        findings=[f for f in findings if not f.checkpoints or f.checkpoints & {*numbers}],
        units=units,
        settle=partial(_settle, store, slots, partitions),
    )


async def _settle(
    store: ObjectStore, slots: Slots, partitions: Sequence[Partition], results: Sequence[UnitResult]
) -> Settled:
    """Compare the paths to each partition's state, and look again which of the slots count."""
    paths: dict[tuple[int, bool], PathResult] = {}
    for result in results:
        for path in result.paths:
            paths[path.partition, path.alternate] = path
    judged: list[UnitResult] = []
    confirmed: dict[str, set[int]] = defaultdict(set)
    for number, partition in enumerate(partitions):
        result = partition.judged(paths[number, False], paths.get((number, True)))
        judged.append(result)
        for part in result.restored:
            if part.redundancy == "equal":
                confirmed[part.partition].update(part.checkpoints)
    settled = [*results]
    for result in judged:
        findings = [_without_confirmed(finding, confirmed) for finding in result.findings]
        settled.append(replace(result, findings=tuple(findings)))
    return settled, (await read_slots(store, earlier=slots)).sizes


def _without_confirmed(finding: Finding, confirmed: Mapping[str, set[int]]) -> Finding:
    """A contradiction without the checkpoints that a second restore of their own confirms.

    `confirmed` are the checkpoints of each partition of which two paths made the same.
    """
    if finding.check != CheckName.REDUNDANCY:
        return finding
    [partition] = finding.partitions
    doubtful = {*finding.doubtful} - confirmed[partition]
    return replace(finding, doubtful=tuple(sorted(doubtful)))


def structural_findings(inventory: Inventory) -> Findings:
    """Everything that breaks an invariant of `checkpoint.invariants`, and the order of slots."""
    findings = inventory_findings(inventory, _known_starts(inventory))
    findings.add(_order(inventory.slots.checkpoints))
    return findings


def _known_starts(inventory: Inventory) -> set[Slot]:
    """Slots that are generations of something: an unreadable one of these was a start."""
    starts = {0, *map(object_names.generation_of, inventory.sizes)}
    for entry in inventory.slots.entries.values():
        starts.add(entry.author.generation)
    return {Slot(start) for start in starts if start is not None}


def _order(checkpoints: Mapping[Slot, Checkpoint]) -> Iterator[Finding]:
    """A manifest that was put back to an older one has fewer changes than the slot before it."""
    # The rows of a canonical savepoint count as changes of nothing.
    counted = [entry for entry in checkpoints.items() if not is_canonical(entry[1])]
    for (before, older), (after, newer) in pairwise(counted):
        if older.author != newer.author:
            continue  # A new start may go on from any checkpoint.
        older_changes = _changes(older)
        for subtask, count in _changes(newer).items():
            minimum = older_changes.get(subtask, SeqNo(0))
            if count < minimum:
                yield Finding(
                    CheckName.ORDER,
                    f"{object_names.checkpoint(after)}: operator {subtask.operator}, "
                    f"subtask {subtask.subtask}",
                    f"{plural(minimum, 'change')} or more, as checkpoint {before} has",
                    f"{count}",
                    (str(subtask),),
                    doubtful=(after,),
                )


def _changes(checkpoint: Checkpoint) -> dict[SubtaskId, SeqNo]:
    """The number of changes of every partition."""
    return {SubtaskId(o.id, state.index): state.seqno for o, state in checkpoint.subtasks()}
