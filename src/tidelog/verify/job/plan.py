"""The work that a store makes: what is restored for which checkpoints, and by which other path; and
what the paths to one state have made, compared.

Invariants: a plan is a pure function of the inventory and the number of workers; every partition of
every chosen checkpoint has one path in one unit, or a structural finding says why it cannot be
restored; paths that begin at one table are in one unit. Damage is a finding that names the object
and the checkpoints; the path from an older materialization is judged only when the partition itself
is sound, and damage on that path is reported by the partition that it belongs to.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from heapq import heapreplace
from itertools import product
from typing import Final, NamedTuple

from tidelog.catalog.inventory import Inventory, range_uses
from tidelog.checkpoint.finding import Finding
from tidelog.checkpoint.manifest import (
    Checkpoint,
    OperatorState,
    StateInfo,
    SubtaskState,
    is_canonical,
    subtasks_of,
)
from tidelog.checkpoint.retention import subtask_objects
from tidelog.checkpoint.sizes import replay_changes
from tidelog.engines import Unit
from tidelog.errors import TidelogError
from tidelog.ids import Slot, SubtaskId
from tidelog.verify.fingerprint import combined, differing
from tidelog.verify.job.paths import (
    OLDER_IS_DAMAGED,
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
from tidelog.verify.results import (
    CheckName,
    PathResult,
    Redundancy,
    RestoredPartition,
    UnitResult,
    finding_of,
)
from tidelog.verify.segments import SegmentUnit, check_job_segment

_SHOWN_GROUPS = 8


@dataclass(frozen=True, slots=True)
class Partition:
    """A subtask's state as some checkpoints hold it alike."""

    checkpoints: tuple[Slot, ...]
    operator: str
    key_groups: int
    states: tuple[StateInfo, ...]
    state: SubtaskState
    files: Mapping[str, str]
    """The objects that hold the files of its materialization, by the files' names."""
    alternate: AlternateHistory | str
    """Another path to the same state, or why there is none."""
    older: tuple[Slot, ...]
    """The checkpoints whose materialization the other path starts from."""
    older_files: Mapping[str, str]
    """The objects of the files of that materialization, by the files' names."""
    before_end: bool
    """The state before the end, from which a later start continues: checked, but not counted."""

    @property
    def label(self) -> str:
        return str(SubtaskId(self.operator, self.state.index))

    def base(self, state: SubtaskState, files: Mapping[str, str]) -> PathBase:
        """What a path to this or an older state of the partition begins at."""
        return PathBase(self.operator, base_of(state), files, self.key_groups, self.states)

    def judged(self, direct: PathResult, other: PathResult | None) -> UnitResult:
        """Compare the results of its paths; `other` is that from the older materialization."""
        if direct.error is not None:
            return UnitResult(findings=(self._unreadable(direct.error),))
        findings = [*self._violations(direct)]
        redundancy: Redundancy = "not checked"
        reason: str | None = OLDER_IS_DAMAGED
        if not isinstance(self.alternate, AlternateHistory):
            reason = self.alternate
        elif other is not None and other.error is None:
            groups = differing(direct.groups, other.groups)
            redundancy, reason = ("different" if groups else "equal"), None
            if groups:
                findings.append(self._contradiction(self.alternate, groups))
        if self.before_end:
            return UnitResult(findings=tuple(findings))
        restored = RestoredPartition(
            partition=self.label,
            operator=self.operator,
            checkpoints=self.checkpoints,
            changes=replay_changes(self.state),
            fingerprint=combined(direct.groups.values()),
            redundancy=redundancy,
            reason=reason,
        )
        return UnitResult((restored,), tuple(findings))

    def _contradiction(self, alternate: AlternateHistory, groups: list[int]) -> Finding:
        assert self.state.materialization is not None
        ref = alternate.older.materialization
        start = f"materialization {ref.descriptor}" if ref else "no materialization"
        group_names = ", ".join(map(str, groups[:_SHOWN_GROUPS]))
        more = f" and {len(groups) - _SHOWN_GROUPS} more" if len(groups) > _SHOWN_GROUPS else ""
        return Finding(
            CheckName.REDUNDANCY,
            self.state.materialization.descriptor,
            f"the state that {start} of checkpoint {alternate.slot} makes with the log above it",
            f"other rows in key groups {group_names}{more}",
            (self.label,),
            doubtful=tuple(sorted({*self.checkpoints, *self.older})),
            action="one of the two is wrong; restore a checkpoint that uses neither, or compare "
            "both with expected values: docs/guides/verify.md",
        )

    def _violations(self, direct: PathResult) -> Iterator[Finding]:
        for violation in direct.violations:
            ref = self.state.materialization
            where = f"the table of {self.label}" + (f", {ref.descriptor} and log" if ref else "")
            yield Finding(
                CheckName.ROWS,
                where,
                violation.expected,
                violation.found,
                (self.label,),
                doubtful=self.checkpoints,
            )

    def _unreadable(self, error: TidelogError) -> Finding:
        names = subtask_objects(self.state) | set(self.files.values())
        return finding_of(error, names, partition=self.label, unusable=self.checkpoints)


_UNEVEN: Final = 1.25
"""The worker with the most work may have so many times the mean before units are divided."""


class _ChainKey(NamedTuple):
    """Chains of one key can be compared."""

    operator: str
    subtask: int
    first_key_group: int
    last_key_group: int
    table: str
    savepoint_slot: Slot | None
    """The slot of a canonical savepoint, whose log is its own; None for other checkpoints."""
    before_end: bool


def plan(
    inventory: Inventory, findings: Iterable[Finding], chosen: Collection[Slot], workers: int
) -> tuple[list[Partition], list[Unit[UnitResult]]]:
    """The partitions to restore, and the units for so many workers, largest first.

    What the structural `findings` concern is not read.
    """
    # Slots with the partitions that cannot be restored; None: with all of them.
    broken: set[tuple[int, str | None]] = set()
    for finding in findings:
        broken.update(product(finding.unusable, finding.partitions or (None,)))
    checkpoints = inventory.slots.checkpoints
    sound = {
        slot: checkpoint for slot, checkpoint in checkpoints.items() if (slot, None) not in broken
    }
    partitions = list(_partitions(inventory, sound, broken, chosen))
    units: list[Unit[UnitResult]] = list(_partition_units(partitions, workers))
    to_verify = [checkpoint for slot, checkpoint in sound.items() if slot in chosen]
    for name, uses in range_uses(to_verify).items():
        if name in inventory.sizes:
            check = partial(check_job_segment, uses)
            units.append(SegmentUnit(name, inventory.sizes[name], check))
    return partitions, sorted(units, key=lambda unit: unit.weight, reverse=True)


def _partitions(
    inventory: Inventory,
    checkpoints: Mapping[Slot, Checkpoint],
    broken: Collection[tuple[int, str | None]],
    chosen: Collection[Slot],
) -> Iterator[Partition]:
    chains: dict[_ChainKey, list[Chain]] = defaultdict(list)
    owners: dict[_ChainKey, dict[Slot, OperatorState]] = defaultdict(dict)
    for slot, checkpoint in checkpoints.items():
        for before_end, operators in ((True, checkpoint.before_end), (False, checkpoint.operators)):
            for operator, state in subtasks_of(operators):
                if (slot, str(SubtaskId(operator.id, state.index))) not in broken:
                    key = _chain_key(checkpoint, operator, state, before_end=before_end)
                    chains[key].append(Chain(slot, checkpoint.author.generation, state))
                    owners[key][slot] = operator
    for key, key_chains in chains.items():
        for same in _alike(key_chains, chosen):
            operator = owners[key][same[0].slot]
            yield _partition(inventory, operator, same, key_chains, before_end=key.before_end)


def _chain_key(
    checkpoint: Checkpoint, operator: OperatorState, state: SubtaskState, *, before_end: bool
) -> _ChainKey:
    savepoint_slot = checkpoint.slot if is_canonical(checkpoint) else None
    groups = state.first_key_group, state.last_key_group
    return _ChainKey(operator.id, state.index, *groups, state.table, savepoint_slot, before_end)


def _alike(chains: Iterable[Chain], chosen: Collection[Slot]) -> Iterable[list[Chain]]:
    """Chosen chains that make the same table out of the same bytes, together; oldest first."""
    groups: dict[SubtaskState, list[Chain]] = defaultdict(list)
    for chain in chains:
        if chain.slot in chosen:
            groups[table_of(chain.state)].append(chain)
    return groups.values()


def _partition(
    inventory: Inventory,
    operator: OperatorState,
    same: list[Chain],
    all_: list[Chain],
    *,
    before_end: bool,
) -> Partition:
    # States that were added since the first of them only add names.
    chain = same[0]
    history = alternate_history(chain, all_)
    older = history.older if isinstance(history, AlternateHistory) else None
    return Partition(
        checkpoints=tuple(member.slot for member in same),
        operator=operator.id,
        key_groups=operator.key_groups,
        states=operator.states,
        state=chain.state,
        files=_files(inventory, chain.state),
        alternate=history,
        older=tuple(
            other.slot
            for other in all_
            if older is not None and other.state.materialization == older.materialization
        ),
        older_files={} if older is None else _files(inventory, older),
        before_end=before_end,
    )


def _files(inventory: Inventory, state: SubtaskState) -> dict[str, str]:
    """The objects of the files of its materializations, by the files' names."""
    files: dict[str, str] = {}
    for ref in state.materializations:
        for file in inventory.descriptors[ref.descriptor].shared:
            files[file.name] = file.object
    return files


def _partition_units(partitions: Sequence[Partition], workers: int) -> list[PartitionUnit]:
    """A unit per subtask, so that shared files are read once; one per table to occupy workers."""
    # Tables of one subtask and one kind can share files.
    kin: dict[tuple[SubtaskId, str], list[PathBase]] = defaultdict(list)
    bases = _bases(partitions)
    for base in bases:
        kin[base.subtask, base.state.table].append(base)
    units = [*map(PartitionUnit, kin.values())]
    weights = [unit.weight for unit in units]
    if _longest(weights, workers) * workers <= _UNEVEN * sum(weights):
        return units
    return [PartitionUnit([base]) for base in bases]


def _longest(weights: Iterable[int], workers: int) -> int:
    """What the worker with the most work has, when each takes the largest unit that is left."""
    loads = [0] * workers
    for weight in sorted(weights, reverse=True):
        heapreplace(loads, loads[0] + weight)
    return max(loads)


def _bases(partitions: Iterable[Partition]) -> list[PathBase]:
    """The tables that paths begin at, each with all its paths."""
    paths: dict[PathBase, list[RestorePath]] = defaultdict(list)
    for number, partition in enumerate(partitions):
        paths[partition.base(partition.state, partition.files)].append(
            direct_path(number, partition.state)
        )
        if isinstance(partition.alternate, AlternateHistory):
            base = partition.base(partition.alternate.older, partition.older_files)
            paths[base].append(alternate_path(number, partition.alternate))
    return [replace(base, paths=tuple(base_paths)) for base, base_paths in paths.items()]
