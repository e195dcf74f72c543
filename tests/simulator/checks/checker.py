"""The checker: watches store and sinks, and checks each slot at the moment it is taken.

Invariants: it looks at the store itself, never through a process; the first violation ends the
run and is never overwritten.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from tests.simulator.checks.restoring import Barriers, Completed
from tests.simulator.checks.violation import Property, Violation
from tests.simulator.machine.network import Truth
from tests.simulator.machine.process import Process
from tests.simulator.run.trace import Trace
from tests.support.clock import in_virtual_time
from tests.support.harness import retained_objects
from tidelog import Checkpoint, Savepoint, TidelogError
from tidelog.checkpoint.descriptor import decode_descriptor
from tidelog.checkpoint.invariants import (
    descriptor_violations,
    direct_needs,
    manifest_violations,
    object_violations,
    slot_violations,
    table_needs,
)
from tidelog.checkpoint.manifest import Entry, decode_entry
from tidelog.ids import Generation, Slot, SubtaskId
from tidelog.runtime.tasks.sink_output import token_of
from tidelog.storage import object_names

_NEWEST: Final = 3
_NONE: Final = Generation(-1)


@dataclass(slots=True)
class Checker:
    trace: Trace
    truth: Truth
    """The store whose checkpoints it judges."""
    expected: dict[str, Counter[Any]]
    exactly_once: bool
    """A record comes once and no more; without it a record may come again."""
    barriers: Barriers = field(init=False)
    expects_all: bool = True
    """False for a job that may be drained: which output it owes is known only at its end."""
    completed: list[Completed] = field(default_factory=list)
    slots: dict[Slot, Entry] = field(default_factory=dict)
    """The slots as they are stored now."""
    violation: Violation | None = None
    violated: asyncio.Event = field(default_factory=asyncio.Event)
    resurrected: set[Slot] = field(default_factory=set)
    """Slots that a late request brought back after their deletion."""
    committed: dict[str, Counter[Any]] = field(default_factory=dict)
    _bytes: dict[Slot, bytes] = field(default_factory=dict)
    newest_generation: Generation = _NONE
    """The newest start that counts; -1 before any."""
    durable: set[bytes] = field(default_factory=set)
    """Transactions that a slot has held."""

    def __post_init__(self) -> None:
        blame = partial(self.blame, Property.BARRIER) if self.exactly_once else None
        self.barriers = Barriers(blame)

    def blame(self, broken: Property, detail: str) -> None:
        """End the run with a violation."""
        if self.violation is None:
            self.violation = Violation(broken, detail)
            self.trace.add("--", f"VIOLATION {self.violation}")
            self.violated.set()

    def written(self, process: Process, name: str) -> None:
        slot = object_names.slot_of(name)
        if slot is None:
            return
        data = self.truth.objects()[name]
        try:
            entry = decode_entry(data, name)
        except TidelogError as error:
            self.blame(Property.MANIFEST, f"{name}: {error}")
            return
        if self._bytes.get(slot) == data:
            # A request that was given up came late: nobody takes this slot again.
            self.resurrected.add(slot)
            self.slots[slot] = entry
            return
        generation = self.newest_generation
        if isinstance(entry, Checkpoint):
            if generation != entry.author.generation:
                self._judge_latecomer(process, entry, generation)
                return
            self._judge(entry)
        elif any(other > slot for other in self.slots):
            # Its writer finds out, and starts again above them.
            self.resurrected.add(slot)
            return
        else:
            self.newest_generation = entry.author.generation
        self._bytes[slot] = data
        self.slots[slot] = entry
        for violation in slot_violations(self.slots, (), self.truth.objects()):
            self.blame(Property.MANIFEST, f"{violation}")

    def deleted(self, process: Process, name: str) -> None:
        slot = object_names.slot_of(name)
        if slot is None:
            return
        self.slots.pop(slot, None)
        if slot == Slot(self.newest_generation):
            self.blame(Property.FENCING, f"{process.name} deleted the newest start, slot {slot}")

    def committing(
        self, sink: str, process: Process, transaction: bytes, records: Sequence[Any]
    ) -> None:
        """A sink is about to make records visible."""
        told = transaction.decode()
        self.trace.add(process.name, f"commit {told} of {len(records)}")
        if transaction not in self.durable:
            self.blame(
                Property.COMMIT_ORDER, f"{process.name} commits {told}, which no slot has held"
            )
        seen = self.committed.setdefault(sink, Counter())
        seen.update(records)
        watched = self.exactly_once and self.expects_all and sink in self.expected
        for record in records if watched else ():
            if seen[record] > self.expected[sink][record]:
                self.blame(
                    Property.EXACTLY_ONCE,
                    f"{sink} holds {record} {seen[record]} times after {process.name} committed "
                    f"{told}, {self.expected[sink][record]} expected",
                )
                return

    def found(self, sink: str, visible: Counter[str] | None) -> None:
        """The job has ended: what a reader of an output sees, when nobody watched its commits."""
        if visible is None:
            return
        if sink in self.expected:
            self.expected[sink] = Counter(map(repr, self.expected[sink].elements()))
        self.committed[sink] = visible

    def outputs_are_complete(self) -> bool:
        """Whether every sink has committed all that is expected of it."""
        return all(
            expected <= self.committed.get(sink, Counter())
            for sink, expected in self.expected.items()
        )

    @property
    def newest(self) -> Checkpoint | None:
        """The last checkpoint that completed."""
        return self.completed[-1].entry if self.completed else None

    def newest_checkpoints(self) -> list[Checkpoint]:
        """The last that completed, newest first: a start may have found one or the other."""
        return [completed.entry for completed in self.completed[: -_NEWEST - 1 : -1]]

    def check_outputs(self, objection: Callable[[Mapping[str, Counter[Any]]], str | None]) -> None:
        """The job has ended: outputs are complete, and hold nothing else."""
        if objected := objection(self.committed):
            self.blame(Property.EXACTLY_ONCE, objected)
        for sink, expected in self.expected.items():
            committed = self.committed.get(sink, Counter())
            missing = expected - committed
            excess = committed - expected
            if not self.exactly_once:
                excess = Counter({r: n for r, n in excess.items() if r not in expected})
            for what, wrong in (("too many", excess), ("missing", missing)):
                if wrong:
                    some = sorted(wrong.items(), key=repr)[:5]
                    detail = f"{sink}: {wrong.total()} records {what}, as {some}"
                    self.blame(Property.EXACTLY_ONCE, detail)

    async def take_census(self, retain: int) -> None:
        """A job has started and ended: slots and what they name are all there is."""
        objects = self.truth.objects()
        if self.truth.lost:
            return  # older checkpoints may name what is gone for good
        try:
            names, needed = await retained_objects(self.truth, in_virtual_time(0))
        except TidelogError as error:
            self.blame(Property.CENSUS, str(error))
            return
        left = sorted(objects.keys() - names - needed)
        lost = sorted((names | needed) - objects.keys())
        ordinary = [n for n in names if type(decode_entry(objects[n], n)) is Checkpoint]
        if left or lost or len(ordinary) > retain:
            self.blame(
                Property.CENSUS,
                f"left over {left[:5]} ({len(left)}), missing {lost[:5]} ({len(lost)}), "
                f"{len(ordinary)} checkpoints of {retain} to retain",
            )

    def _judge_latecomer(self, process: Process, entry: Checkpoint, generation: Generation) -> None:
        """Below the newest start a zombie can win a slot that retention has dropped.

        It finds out before it commits: what it prepared stays unknown to `committing`.
        """
        self.trace.add(process.name, f"took slot {entry.slot} too late")
        self.resurrected.add(entry.slot)
        if entry.slot > generation:
            self.blame(
                Property.FENCING,
                f"{process.name} took slot {entry.slot} as generation {entry.author.generation} "
                f"although generation {generation} had started",
            )

    def _judge(self, entry: Checkpoint) -> None:
        objects = self.truth.objects()
        self.trace.add("--", f"slot {entry.slot} holds checkpoint {entry.checkpoint_id}")
        for _, state in entry.subtasks():
            self.durable.update(map(token_of, state.transactions))
        found = manifest_violations(entry)
        needs = direct_needs(entry)
        for operator, layer, ref, descriptor in _descriptors(entry, objects):
            needs += table_needs(descriptor)
            found += descriptor_violations(operator.id, layer, ref, descriptor)
        lacking = object_violations(needs, {name: len(data) for name, data in objects.items()})
        # Only what ends a job, or is to stay, has to need nothing that the store has lost.
        excused = set() if isinstance(entry, Savepoint) else self.truth.lost
        found += [each for each in lacking if each.where not in excused]
        self.completed.append(Completed(entry, objects, whole=not lacking))
        for violation in found:
            self.blame(Property.MANIFEST, f"slot {entry.slot}: {violation}")
        self._judge_log(entry)

    def _judge_log(self, entry: Checkpoint) -> None:
        """A change that the table has, and a checkpoint known to be complete had as log, is not
        named again; of a subtask that has exited none that the table has.
        """
        at_barrier = self.barriers.of(entry)
        for operator, state in entry.subtasks():
            task = SubtaskId(operator.id, state.index)
            seen = at_barrier.get(task)
            checkpointed = state.seqno if seen is None else seen.checkpointed
            below = min(state.upto, checkpointed)
            # What ends exactly there may hold the state metadata that the new log starts with.
            superfluous = [part for part in state.log if part.end < below]
            if superfluous:
                self.blame(
                    Property.BOUNDED_LOG,
                    f"slot {entry.slot}, {task}: {superfluous[0]} is covered by the table up to "
                    f"{state.upto} and by a completed checkpoint up to {checkpointed}",
                )


def _descriptors(entry: Checkpoint, objects: Mapping[str, bytes]) -> Iterator[tuple[Any, ...]]:
    """Operator, layer, reference and descriptor of each materialization that is stored."""
    for operator, layer in entry.layers():
        ref = layer.materialization
        if ref is not None and ref.descriptor in objects:
            yield operator, layer, ref, decode_descriptor(objects[ref.descriptor], ref.descriptor)
