"""The verification of a store of tidelog's own.

Invariants: nothing is written to it; what a running job drops meanwhile is no damage.
"""

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import replace

from tidelog.catalog.inventory import Inventory, read_inventory
from tidelog.checkpoint.finding import Finding, without_changes
from tidelog.checkpoint.slots import list_slots
from tidelog.concurrency import Progress, no_progress
from tidelog.errors import ObjectNotFoundError, RestoreError
from tidelog.ids import CheckpointId, Slot
from tidelog.storage.port import ObjectStore
from tidelog.verify.findings import Check
from tidelog.verify.job.partition import Partition
from tidelog.verify.job.plan import plan
from tidelog.verify.job.structure import known_starts, structural_findings
from tidelog.verify.report import Report, checkpoint_reports, not_checked
from tidelog.verify.unit import Choice, Engine, UnitResult


async def verify_store(
    store: ObjectStore,
    engine: Engine,
    *,
    chosen: Choice = "all",
    progress: Progress = no_progress,
) -> Report:
    """Verify all checkpoints, the latest, or the one in a slot.

    Raises ObjectNotFoundError for a slot that is not there, RestoreError when there is no
    checkpoint at all, and what the store raises.
    """
    inventory = await read_inventory(store, progress)
    ids = _checkpoints(store, inventory, chosen)
    findings = structural_findings(inventory)
    slots = [Slot(number) for number in ids]
    planned = plan(inventory, findings.without_repeats(), slots, engine.workers)
    found = await engine.run(planned.units, progress)
    results = [*_judged(planned.partitions, found), *found]
    present = await list_slots(store)
    confirmed = {
        (part.partition, checkpoint)
        for result in results
        for part in result.restored
        if part.redundancy == "equal"
        for checkpoint in part.checkpoints
    }
    for result in results:
        findings.add(_without_confirmed(finding, confirmed) for finding in result.findings)
    listed = inventory.slots.sizes
    left = tuple(without_changes(findings.without_repeats(), listed, present))
    return Report(
        url=store.url,
        layout="job",
        engine=engine.name,
        checkpoints=checkpoint_reports(ids, results, left, present),
        problems=left,
        unchecked=not_checked(results, present),
        all_seen=chosen == "all",
    )


def _judged(partitions: Sequence[Partition], found: Iterable[UnitResult]) -> Iterator[UnitResult]:
    """What the paths to each partition's state come to, whatever unit replayed them."""
    paths = {(path.partition, path.alternate): path for result in found for path in result.paths}
    for number, partition in enumerate(partitions):
        yield partition.judged(paths[number, False], paths.get((number, True)))


def _without_confirmed(finding: Finding, confirmed: Container[tuple[str, int]]) -> Finding:
    """A contradiction without the checkpoints that a second restore of their own confirms.

    `confirmed` are the partitions and checkpoints that were restored over two paths alike.
    """
    if finding.check != Check.REDUNDANCY:
        return finding
    left = (n for n in finding.doubtful if any((p, n) not in confirmed for p in finding.partitions))
    return replace(finding, doubtful=tuple(left))


def _checkpoints(
    store: ObjectStore, inventory: Inventory, chosen: Choice
) -> dict[int, CheckpointId | None]:
    """Ids of the chosen checkpoints by slot; None where the slot cannot be read."""
    slots = inventory.slots
    found: dict[int, CheckpointId | None] = {
        slot: checkpoint.checkpoint_id for slot, checkpoint in slots.checkpoints.items()
    }
    found |= dict.fromkeys(slots.unreadable.keys() - known_starts(inventory))
    if not found:
        raise RestoreError(
            f"store {store.url}",
            expected="a checkpoint",
            found="starts only",
            action="let the job complete its first checkpoint",
        )
    if isinstance(chosen, int) and chosen not in found:
        raise ObjectNotFoundError(
            f"checkpoint {chosen} of store {store.url}",
            expected=f"one of {', '.join(map(str, sorted(found)))}",
            found="no such checkpoint",
            action="choose a checkpoint that `tidelog checkpoints list URL` shows",
        )
    if chosen == "all":
        return dict(sorted(found.items()))
    slot = max(found) if chosen == "latest" else chosen
    return {slot: found[slot]}
