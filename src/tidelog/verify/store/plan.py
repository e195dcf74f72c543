"""The work that a store makes: what is restored for which checkpoints, and by which other way.

Invariants: a pure function of the inventory; every partition of every chosen checkpoint is in
exactly one unit, or a structural problem says why it cannot be restored; what several checkpoints
share is one unit.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

import msgspec

from tidelog.checkpoint.inventory import Inventory
from tidelog.checkpoint.manifest import Checkpoint, OperatorState, SubtaskState, is_canonical
from tidelog.dstl.segment import LogRange
from tidelog.ids import Slot
from tidelog.verify.bench import Unit
from tidelog.verify.problems import Problem
from tidelog.verify.store.lineage import Chain, Detour, detour
from tidelog.verify.store.partition import PartitionUnit
from tidelog.verify.store.segments import RangeUse, SegmentUnit
from tidelog.verify.store.structure import partition_label

Place = tuple[str, int, int, int, str, Slot | None]
"""Operator, subtask, its key groups, kind of table: chains of one place can be compared."""


def plan(inventory: Inventory, problems: Iterable[Problem], chosen: Collection[Slot]) -> list[Unit]:
    """The units of the chosen checkpoints, largest first.

    `problems` are the structural ones: what they concern is not read.
    """
    broken = _Broken.of(problems)
    checkpoints = inventory.slots.checkpoints
    sound = {slot: checkpoint for slot, checkpoint in checkpoints.items() if broken.allows(slot)}
    units: list[Unit] = []
    units += _partitions(inventory, sound, broken, chosen)
    units += _segments(inventory, {slot: sound[slot] for slot in sound if slot in chosen})
    return sorted(units, key=lambda unit: unit.weight, reverse=True)


@dataclass(frozen=True, slots=True)
class _Broken:
    """What cannot be restored, known without reading it."""

    slots: frozenset[int]
    partitions: frozenset[tuple[int, str]]

    @classmethod
    def of(cls, problems: Iterable[Problem]) -> "_Broken":
        costly = [problem for problem in problems if problem.unusable]
        return cls(
            frozenset(s for p in costly if not p.partitions for s in p.unusable),
            frozenset((s, name) for p in costly for s in p.unusable for name in p.partitions),
        )

    def allows(self, slot: Slot, partition: str | None = None) -> bool:
        """Whether the manifest, or a partition of it, is sound."""
        if slot in self.slots:
            return False
        return partition is None or (slot, partition) not in self.partitions


def _partitions(
    inventory: Inventory,
    checkpoints: Mapping[Slot, Checkpoint],
    broken: _Broken,
    chosen: Collection[Slot],
) -> Iterator[PartitionUnit]:
    chains: dict[Place, list[Chain]] = defaultdict(list)
    owners: dict[Place, dict[Slot, OperatorState]] = defaultdict(dict)
    for slot, checkpoint in checkpoints.items():
        for operator, state in checkpoint.subtasks():
            if broken.allows(slot, partition_label(operator.id, state.index)):
                place = _place(checkpoint, operator, state)
                chains[place].append(Chain(slot, checkpoint.author.generation, state))
                owners[place][slot] = operator
    for place, found in chains.items():
        for same in _alike(chain for chain in found if chain.slot in chosen):
            yield _unit(inventory, owners[place][same[0].slot], same, found)


def _place(checkpoint: Checkpoint, operator: OperatorState, state: SubtaskState) -> Place:
    # The log of a canonical savepoint is no part of the history that the others share.
    apart = checkpoint.slot if is_canonical(checkpoint) else None
    groups = state.first_key_group, state.last_key_group
    return operator.id, state.index, *groups, state.table, apart


def _alike(chains: Iterable[Chain]) -> Iterable[list[Chain]]:
    """Chains that make the same table out of the same bytes, together; oldest first."""
    groups: dict[SubtaskState, list[Chain]] = defaultdict(list)
    for chain in chains:
        groups[_table_of(chain.state)].append(chain)
    return groups.values()


def _table_of(state: SubtaskState) -> SubtaskState:
    """What of a subtask's state its table is made of."""
    return msgspec.structs.replace(
        state,
        watermark=None,
        transactions=(),
        finished=False,
        advancing=None,
        in_flight=None,
        barrier=None,
        updates=0,
    )


def _unit(
    inventory: Inventory, operator: OperatorState, same: list[Chain], all_: list[Chain]
) -> PartitionUnit:
    # States that were added since the first of them only add names.
    chain = same[0]
    way = detour(chain, (other for other in all_ if other.slot != chain.slot))
    return PartitionUnit(
        checkpoints=tuple(each.slot for each in same),
        operator=operator.id,
        key_groups=operator.key_groups,
        states=operator.states,
        state=chain.state,
        files=_files(inventory, chain.state),
        detour=way,
        older=_users(way, all_),
        older_files=_files(inventory, way.older) if isinstance(way, Detour) else {},
    )


def _files(inventory: Inventory, state: SubtaskState) -> dict[str, str]:
    """The objects of the files of its materializations, by the files' names."""
    refs = [layer.materialization for layer in state.layers if layer.materialization is not None]
    described = [inventory.descriptors[ref.descriptor] for ref in refs]
    return {file.name: file.object for descriptor in described for file in descriptor.shared}


def _users(way: Detour | str, chains: Iterable[Chain]) -> tuple[Slot, ...]:
    if not isinstance(way, Detour):
        return ()
    start = way.older.materialization
    return tuple(chain.slot for chain in chains if chain.state.materialization == start)


def _segments(
    inventory: Inventory, checkpoints: Mapping[Slot, Checkpoint]
) -> Iterator[SegmentUnit]:
    uses: dict[tuple[LogRange, str, int], list[Slot]] = defaultdict(list)
    for slot, checkpoint in checkpoints.items():
        for use in _ranges(checkpoint):
            found_in = uses[use]
            if slot not in found_in:
                found_in.append(slot)
    by_segment: dict[str, list[RangeUse]] = defaultdict(list)
    for (part, owner, index), slots in uses.items():
        by_segment[part.segment].append(RangeUse(part, owner, index, tuple(slots)))
    for name, found in by_segment.items():
        if name in inventory.sizes:
            yield SegmentUnit(name, inventory.sizes[name], tuple(found))


def _ranges(checkpoint: Checkpoint) -> Iterator[tuple[LogRange, str, int]]:
    """The parts of segments that it needs, each with the operator and subtask that wrote it."""
    for operator, state in checkpoint.subtasks():
        for layer in state.layers:
            yield from ((part, operator.id, layer.subtask) for part in layer.log)
        if state.in_flight is not None:
            yield from ((part, operator.id, state.index) for part in state.in_flight.log)
