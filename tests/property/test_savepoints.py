"""Savepoints in the life of a job: whatever happens around them, they restore what they captured,
into any table, and what is started from one without a claim needs none of its files.

The machine of `test_state_machine` with savepoints among its checkpoints, and starts from any of
them with and without a claim.
"""

import copy
from typing import ClassVar

import hypothesis.strategies as st
from hypothesis.stateful import precondition, rule

from tests.property.test_state_machine import Model, StateMachine, machine
from tests.support.harness import Incarnation, checkpoint_at, reachable
from tidelog import Checkpoint, RestoreFrom, Savepoint
from tidelog.checkpoint.decisions import SavepointRequest
from tidelog.checkpoint.manifest import SavepointFormat, is_canonical
from tidelog.checkpoint.retention import checkpoint_objects
from tidelog.ids import Slot


class SavepointMachine(StateMachine):
    asked: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__()
        self.foreign: set[str] = set()
        """Objects that the running incarnation must not come to need."""

    @precondition(lambda self: self.barriered is None)
    @rule(format=st.sampled_from(["canonical", "native"]))
    def barriers_of_a_savepoint_pass(self, format: SavepointFormat) -> None:
        SavepointMachine.asked += 1
        request = SavepointRequest(f"asked-{SavepointMachine.asked}", format)
        self.barriered = self.run(self.job.barrier(request)), copy.deepcopy(self.model)

    @precondition(lambda self: self.barriered is None)
    @rule(format=st.sampled_from(["canonical", "native"]))
    def a_savepoint(self, format: SavepointFormat) -> None:
        self.barriers_of_a_savepoint_pass(format)
        self.a_checkpoint_ends()

    def a_checkpoint_ends(self) -> None:
        before = set(self.models)
        super().a_checkpoint_ends()
        for slot in set(self.models) - before:
            checkpoint = self._entry(slot)
            assert self._objects(checkpoint).isdisjoint(self.foreign)

    @rule(data=st.data(), claim=st.booleans())
    def crash_and_start_from(self, data: st.DataObject, claim: bool) -> None:
        self.run(self._crash())
        slots = self._retained()
        if not slots:
            self._start(None)
            self.model = Model()
            return
        slot = data.draw(st.sampled_from(slots))
        checkpoint = self._entry(slot)
        whole = is_canonical(checkpoint) or not claim
        self.foreign = self._objects(checkpoint) if whole else set()
        self.job = Incarnation(
            self.store,
            self.config,
            self.clock,
            self.rng,
            restore_from=RestoreFrom(slot, claim=claim),
        )
        self.run(self.job.start())
        self.model = copy.deepcopy(self.models[slot])
        self._check_running()

    def _start(self, slot: Slot | None) -> None:
        self.foreign = set()
        super()._start(slot)

    def _entry(self, slot: Slot) -> Checkpoint:
        return self.run(checkpoint_at(self.memory, slot, self.job.runner.effects))

    def _objects(self, checkpoint: Checkpoint) -> set[str]:
        return self.run(reachable(self.memory, checkpoint_objects(checkpoint)))

    def _check_retained(self) -> None:
        """All savepoints but one that may have been claimed, and a few checkpoints."""
        kept = [self._entry(slot) for slot in self._retained()]
        ordinary = [entry for entry in kept if not isinstance(entry, Savepoint)]
        assert len(ordinary) <= self.config.retain


TestMemory = machine(SavepointMachine, 8, 38)
TestRocks = machine(SavepointMachine, 2, 30, table="rocksdb")
TestMemoryWithoutChangelog = machine(SavepointMachine, 4, 32, changelog=False)
