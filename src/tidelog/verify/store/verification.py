"""The verification of a store of tidelog's own.

Invariants: nothing is written to it; what a running job drops meanwhile is no damage.
"""

from collections.abc import Container

from tidelog.checkpoint.bounded import Progress, no_progress
from tidelog.checkpoint.inventory import Inventory, list_slots, read_inventory
from tidelog.errors import ObjectNotFoundError, RestoreError
from tidelog.ids import CheckpointId, Slot
from tidelog.storage import paths
from tidelog.storage.port import ObjectStore
from tidelog.verify.bench import Choice, Engine
from tidelog.verify.problems import Problem, without_confirmed
from tidelog.verify.report import Report, checkpoint_reports, not_checked, still_concerning
from tidelog.verify.store.plan import plan
from tidelog.verify.store.structure import known_starts, structural_problems


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
    problems = structural_problems(inventory)
    units = plan(inventory, problems.all(), [Slot(number) for number in ids])
    results = await engine.run(units, progress)
    present = await list_slots(store)
    confirmed = {
        (part.partition, checkpoint)
        for result in results
        for part in result.restored
        if part.redundancy == "equal"
        for checkpoint in part.checkpoints
    }
    for result in results:
        problems.add(without_confirmed(problem, confirmed) for problem in result.problems)
    left = tuple(
        problem
        for problem in still_concerning(problems, present)
        if not _appeared(problem, inventory, present)
    )
    return Report(
        url=store.url,
        layout="tidelog",
        engine=engine.name,
        checkpoints=checkpoint_reports(ids, results, left, present),
        problems=left,
        unchecked=not_checked(results, present),
    )


def _appeared(problem: Problem, inventory: Inventory, present: Container[Slot]) -> bool:
    """Whether it is about a slot that a job has written meanwhile: a start that was no gap."""
    slot = paths.slot_of(problem.where)
    return slot is not None and slot in present and slot not in inventory.slots.sizes


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
