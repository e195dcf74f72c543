"""Which checkpoints stay, and which objects nothing needs any more: pure set decisions.

Invariants:
- the newest `start` always stays (it is the fence), and so do the newest checkpoint and savepoints;
- the newest slot names the older ones that count. Any other below it is left over: the start of a
  generation that is fenced, a checkpoint that is about to be deleted, or one that a fenced job
  wrote too late into a slot whose name was free again;
- an object goes only when no retained manifest and no live subtask refers to it (min of
  materialized and subsumed), and only after the manifests that named it are gone.
"""

from collections.abc import Collection, Iterable, Set

from tidelog.checkpoint.manifest import Checkpoint, Entry, InheritedState, SlotRanges, SubtaskState
from tidelog.ids import Generation, Slot
from tidelog.storage.object_names import generation_of


def subsumed(
    retained: Iterable[Slot], keep: int, pinned: Collection[Slot] = frozenset()
) -> list[Slot]:
    """The checkpoint slots that a history of the newest `keep` besides `pinned` does not need."""
    ordered = sorted(set(retained).difference(pinned))
    return ordered[: max(0, len(ordered) - keep)]


def slot_ranges(slots: Iterable[Slot]) -> SlotRanges:
    """Slot numbers as an entry's `history` holds them."""
    ranges: list[tuple[Slot, Slot]] = []
    for slot in sorted(slots):
        if ranges and slot == ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], slot)
        else:
            ranges.append((slot, slot))
    return tuple(ranges)


def counted(slots: Iterable[Slot], newest: Entry) -> list[Slot]:
    """The stored slots that count when `newest` is the newest entry that can be read.

    Slots above it count too: what they hold is not known.
    """
    own_start = Slot(newest.author.generation)
    return [
        slot
        for slot in slots
        if slot >= newest.slot or slot == own_start or in_ranges(slot, newest.history)
    ]


def in_ranges(slot: Slot, ranges: SlotRanges) -> bool:
    return any(first <= slot <= last for first, last in ranges)


def subtask_objects(state: SubtaskState) -> set[str]:
    """Objects a subtask's state names directly: segments and descriptors."""
    names = set[str]().union(*map(layer_objects, state.layers))
    if state.in_flight is not None:
        names.update(log_range.segment for log_range in state.in_flight.log)
    return names


def layer_objects(layer: InheritedState) -> set[str]:
    """Objects that a part of a subtask's state names directly."""
    names = {log_range.segment for log_range in layer.log}
    if layer.materialization is not None:
        names.add(layer.materialization.descriptor)
    return names


def checkpoint_objects(checkpoint: Checkpoint) -> set[str]:
    """Objects a checkpoint names directly; its descriptors name the table files."""
    names: set[str] = set()
    for _, subtask in checkpoint.stored_subtasks():
        names |= subtask_objects(subtask)
    return names


def collectable(
    names: Iterable[str], referenced: Set[str], current: Generation
) -> tuple[list[str], list[str]]:
    """Split stored data objects into (garbage of older generations, unreferenced current ones).

    Older generations are fenced, so what no retained manifest names there can never be named
    again. The current generation's unreferenced objects may be named by its next checkpoint.
    """
    old: list[str] = []
    undecided: list[str] = []
    for name in names:
        generation = generation_of(name)
        if generation is None or name in referenced:
            continue
        (old if generation < current else undecided).append(name)
    return old, undecided
