"""The referee: watches store and sinks, and checks each slot at the moment it is taken.

Invariants: it looks at the store itself, never through a process; the first violation ends the
run and is never overwritten.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidelog.checkpoint.invariants import (
    descriptor_violations,
    direct_needs,
    manifest_violations,
    object_violations,
    slot_violations,
    table_needs,
)
from tidelog.checkpoint.manifest import (
    Checkpoint,
    Entry,
    Savepoint,
    Start,
    decode_descriptor,
    decode_entry,
)
from tidelog.errors import TidelogError
from tidelog.ids import Generation, SeqNo, Slot
from tidelog.runtime.tasks.sink_output import token_of
from tidelog.simulate.process import Process
from tidelog.simulate.trace import Trace
from tidelog.simulate.violation import Property, Violation
from tidelog.storage import paths

Objects = Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Completed:
    """A checkpoint as it was when its slot was taken."""

    entry: Checkpoint
    objects: Objects


@dataclass(slots=True)
class Referee:
    """Judges one run."""

    trace: Trace
    now: Callable[[], float]
    objects: Callable[[], dict[str, bytes]]
    expected: dict[str, Counter[Any]]
    answers_arrive: bool
    """A job knows which of its checkpoints completed."""
    completed: list[Completed] = field(default_factory=list)
    slots: dict[Slot, Entry] = field(default_factory=dict)
    """The slots as they are stored now."""
    violation: Violation | None = None
    violated: asyncio.Event = field(default_factory=asyncio.Event)
    resurrected: set[Slot] = field(default_factory=set)
    """Slots that a late request brought back after their deletion."""
    committed: dict[str, Counter[Any]] = field(default_factory=dict)
    _bytes: dict[Slot, bytes] = field(default_factory=dict)
    _logged: dict[tuple[Generation, str, int], SeqNo] = field(default_factory=dict)
    """What the last checkpoint of a subtask reached to."""
    _outrun: set[Slot] = field(default_factory=set)
    """Starts that came when slots above them were taken: their writers have to start again."""
    _durable: set[bytes] = field(default_factory=set)
    """Transactions that a slot has held."""

    @property
    def newest_generation(self) -> Generation:
        """The newest start that counts; -1 before any."""
        starts = [
            entry.author.generation
            for slot, entry in self.slots.items()
            if isinstance(entry, Start) and slot not in self._outrun
        ]
        return max(starts, default=Generation(-1))

    def blame(self, broken: Property, detail: str) -> None:
        """End the run with a violation."""
        if self.violation is None:
            self.violation = Violation(broken, detail)
            self.trace.add(self.now(), "--", f"VIOLATION {self.violation}")
            self.violated.set()

    def written(self, process: Process, operation: str, name: str, data: bytes) -> None:
        """An object was stored."""
        slot = paths.slot_of(name)
        if slot is None:
            return
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
            self._outrun.add(slot)
        self._bytes[slot] = data
        self.slots[slot] = entry
        for violation in slot_violations(self.slots, (), self.objects()):
            self.blame(Property.MANIFEST, f"{violation}")

    def deleted(self, process: Process, name: str) -> None:
        """An object was deleted."""
        slot = paths.slot_of(name)
        if slot is None:
            return
        entry = self.slots.pop(slot, None)
        if isinstance(entry, Start):
            self.blame(Property.FENCING, f"{process.name} deleted the start in slot {slot}")

    def committing(
        self,
        sink: str,
        process: Process,
        transaction: bytes,
        records: Sequence[Any],
    ) -> None:
        """A sink is about to make records visible."""
        told = transaction.decode()
        self.trace.add(self.now(), process.name, f"commit {told} of {len(records)}")
        if transaction not in self._durable:
            self.blame(
                Property.COMMIT_ORDER, f"{process.name} commits {told}, which no slot has held"
            )
        seen = self.committed.setdefault(sink, Counter())
        seen.update(records)
        for record in records:
            if seen[record] > self.expected[sink][record]:
                self.blame(
                    Property.EXACTLY_ONCE,
                    f"{sink} holds {record} {seen[record]} times after {process.name} committed "
                    f"{told}, {self.expected[sink][record]} expected",
                )
                return

    def check_outputs(self) -> None:
        """The job has ended: outputs are complete."""
        for sink, expected in self.expected.items():
            missing = expected - self.committed.get(sink, Counter())
            if missing:
                some = sorted(missing.items(), key=repr)[:5]
                self.blame(
                    Property.EXACTLY_ONCE, f"{sink} lacks {missing.total()} records, as {some}"
                )

    def _judge_latecomer(self, process: Process, entry: Checkpoint, generation: Generation) -> None:
        """Below the newest start a zombie can win a slot that retention has dropped.

        It finds out before it commits: what it prepared stays unknown to `committing`.
        """
        self.trace.add(self.now(), process.name, f"took slot {entry.slot} too late")
        self.resurrected.add(entry.slot)
        if entry.slot > generation:
            self.blame(
                Property.FENCING,
                f"{process.name} took slot {entry.slot} as generation {entry.author.generation} "
                f"although generation {generation} had started",
            )

    def _judge(self, entry: Checkpoint) -> None:
        objects = self.objects()
        self.trace.add(
            self.now(), "--", f"slot {entry.slot} holds checkpoint {entry.checkpoint_id}"
        )
        for _, state in entry.subtasks():
            self._durable.update(map(token_of, state.transactions))
        self.completed.append(Completed(entry, objects))
        for violation in manifest_violations(entry):
            self.blame(Property.MANIFEST, f"{violation}")
        sizes = {name: len(data) for name, data in objects.items()}
        needs = direct_needs(entry)
        for operator, layer in entry.layers():
            ref = layer.materialization
            if ref is None or ref.descriptor not in objects:
                continue
            descriptor = decode_descriptor(objects[ref.descriptor], ref.descriptor)
            needs += table_needs(descriptor)
            for violation in descriptor_violations(operator.id, layer, ref, descriptor):
                self.blame(Property.MANIFEST, f"slot {entry.slot}: {violation}")
        for violation in object_violations(needs, sizes):
            self.blame(Property.MANIFEST, f"slot {entry.slot}: {violation}")
        if self.answers_arrive:
            self._judge_log(entry)

    def _judge_log(self, entry: Checkpoint) -> None:
        """A change that the table has and the checkpoint before had as log is not named again."""
        for operator, state in entry.subtasks():
            task = (entry.author.generation, operator.id, state.index)
            before = self._logged.get(task, SeqNo(0))
            # What ends exactly there may hold the state metadata that the new log starts with.
            covered = [part for part in state.log if part.end < min(state.upto, before)]
            if covered:
                self.blame(
                    Property.BOUNDED_LOG,
                    f"slot {entry.slot}, {operator.id}-{state.index}: {covered[0]} is covered by "
                    f"the table up to {state.upto} and by the checkpoint up to {before}",
                )
            if not isinstance(entry, Savepoint):
                self._logged[task] = state.seqno
