"""The work that a store makes: what is restored for which checkpoints, and by which other path.

Invariants: a pure function of the inventory and the number of workers; every partition of every
chosen checkpoint has one path in one unit, or a structural finding says why it cannot be restored;
paths that begin at one table are in one unit.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from heapq import heapreplace
from typing import Final

from tidelog.catalog.inventory import Inventory, range_uses
from tidelog.checkpoint.finding import Finding
from tidelog.checkpoint.manifest import Checkpoint, OperatorState, SubtaskState, is_canonical
from tidelog.engines import Unit
from tidelog.ids import Slot, SubtaskId
from tidelog.verify.job.partition import Partition
from tidelog.verify.job.paths import (
    AlternateHistory,
    Chain,
    RestorePath,
    alternate_history,
    alternate_path,
    base_of,
    direct_path,
    table_of,
)
from tidelog.verify.job.replay import PartitionUnit, PathBase
from tidelog.verify.results import UnitResult
from tidelog.verify.segments import SegmentUnit, check_job_segment

_UNEVEN: Final = 1.25
"""The worker with the most work may have so many times the mean before units are divided."""

_ChainKey = tuple[str, int, int, int, str, Slot | None]
"""Operator, subtask, its key groups, kind of table: chains of one key can be compared."""


def plan(
    inventory: Inventory, findings: Iterable[Finding], chosen: Collection[Slot], workers: int
) -> tuple[list[Partition], list[Unit[UnitResult]]]:
    """What is restored of the chosen checkpoints, and the units for so many workers, largest first.

    `findings` are the structural ones: what they concern is not read.
    """
    broken = _Broken.of(findings)
    checkpoints = inventory.slots.checkpoints
    sound = {slot: checkpoint for slot, checkpoint in checkpoints.items() if broken.allows(slot)}
    partitions = list(_partitions(inventory, sound, broken, chosen))
    units: list[Unit[UnitResult]] = list(_partition_units(partitions, workers))
    units += (
        SegmentUnit(name, inventory.sizes[name], partial(check_job_segment, uses))
        for name, uses in range_uses(c for slot, c in sound.items() if slot in chosen).items()
        if name in inventory.sizes
    )
    return partitions, sorted(units, key=lambda unit: unit.weight, reverse=True)


@dataclass(frozen=True, slots=True)
class _Broken:
    """What cannot be restored, known without reading it."""

    slots: frozenset[int]
    partitions: frozenset[tuple[int, str]]

    @classmethod
    def of(cls, findings: Iterable[Finding]) -> "_Broken":
        costly = [finding for finding in findings if finding.unusable]
        return cls(
            frozenset(s for p in costly if not p.partitions for s in p.unusable),
            frozenset((s, name) for p in costly for s in p.unusable for name in p.partitions),
        )

    def allows(self, slot: Slot, subtask: SubtaskId | None = None) -> bool:
        """Whether a manifest, or one subtask in it, is sound."""
        if slot in self.slots:
            return False
        return subtask is None or (slot, str(subtask)) not in self.partitions


def _partitions(
    inventory: Inventory,
    checkpoints: Mapping[Slot, Checkpoint],
    broken: _Broken,
    chosen: Collection[Slot],
) -> Iterator[Partition]:
    chains: dict[_ChainKey, list[Chain]] = defaultdict(list)
    owners: dict[_ChainKey, dict[Slot, OperatorState]] = defaultdict(dict)
    for slot, checkpoint in checkpoints.items():
        for operator, state in checkpoint.subtasks():
            if broken.allows(slot, SubtaskId(operator.id, state.index)):
                key = _chain_key(checkpoint, operator, state)
                chains[key].append(Chain(slot, checkpoint.author.generation, state))
                owners[key][slot] = operator
    for key, found in chains.items():
        for same in _alike(chain for chain in found if chain.slot in chosen):
            yield _partition(inventory, owners[key][same[0].slot], same, found)


def _chain_key(checkpoint: Checkpoint, operator: OperatorState, state: SubtaskState) -> _ChainKey:
    # The log of a canonical savepoint is no part of the history that the others share.
    apart = checkpoint.slot if is_canonical(checkpoint) else None
    groups = state.first_key_group, state.last_key_group
    return operator.id, state.index, *groups, state.table, apart


def _alike(chains: Iterable[Chain]) -> Iterable[list[Chain]]:
    """Chains that make the same table out of the same bytes, together; oldest first."""
    groups: dict[SubtaskState, list[Chain]] = defaultdict(list)
    for chain in chains:
        groups[table_of(chain.state)].append(chain)
    return groups.values()


def _partition(
    inventory: Inventory, operator: OperatorState, same: list[Chain], all_: list[Chain]
) -> Partition:
    # States that were added since the first of them only add names.
    chain = same[0]
    history = alternate_history(chain, (other for other in all_ if other.slot != chain.slot))
    older = history.older if isinstance(history, AlternateHistory) else None
    return Partition(
        checkpoints=tuple(each.slot for each in same),
        operator=operator.id,
        key_groups=operator.key_groups,
        states=operator.states,
        state=chain.state,
        files=_files(inventory, chain.state),
        alternate=history,
        older=tuple(
            each.slot
            for each in all_
            if older is not None and each.state.materialization == older.materialization
        ),
        older_files={} if older is None else _files(inventory, older),
    )


def _files(inventory: Inventory, state: SubtaskState) -> dict[str, str]:
    """The objects of the files of its materializations, by the files' names."""
    described = [inventory.descriptors[ref.descriptor] for ref in state.materializations]
    return {file.name: file.object for descriptor in described for file in descriptor.shared}


_Kin = tuple[SubtaskId, str]
"""Subtask and kind of table: tables of one can share files."""


def _partition_units(partitions: Sequence[Partition], workers: int) -> list[PartitionUnit]:
    """A unit per subtask, so that what its tables share is read once; where that would leave
    workers without work, one per table.
    """
    kin: dict[_Kin, list[PathBase]] = defaultdict(list)
    for base in _bases(partitions):
        kin[SubtaskId(base.operator, base.state.index), base.state.table].append(base)
    whole = [PartitionUnit(subtask, tuple(bases)) for (subtask, _), bases in kin.items()]
    if _longest(whole, workers) * workers <= _UNEVEN * sum(unit.weight for unit in whole):
        return whole
    return [PartitionUnit(unit.subtask, (base,)) for unit in whole for base in unit.bases]


def _longest(units: Iterable[PartitionUnit], workers: int) -> int:
    """What the worker with the most work has, when each takes the largest unit that is left."""
    loads = [0] * workers
    for weight in sorted((unit.weight for unit in units), reverse=True):
        heapreplace(loads, loads[0] + weight)
    return max(loads)


def _bases(partitions: Iterable[Partition]) -> list[PathBase]:
    """The tables that paths begin at, each with all its paths."""
    paths: dict[tuple[object, ...], list[RestorePath]] = defaultdict(list)
    begun: dict[tuple[object, ...], PathBase] = {}

    def add(
        partition: Partition, state: SubtaskState, files: Mapping[str, str], path: RestorePath
    ) -> None:
        state = base_of(state)
        key = partition.operator, partition.key_groups, partition.states, state
        paths[key].append(path)
        begun[key] = PathBase(partition.operator, state, files, *key[1:3], ())

    for number, each in enumerate(partitions):
        add(each, each.state, each.files, direct_path(number, each.state))
        if isinstance(each.alternate, AlternateHistory):
            path = alternate_path(number, each.alternate)
            add(each, each.alternate.older, each.older_files, path)
    return [replace(base, paths=tuple(paths[key])) for key, base in begun.items()]
