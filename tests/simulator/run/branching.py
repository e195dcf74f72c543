"""A world with several stores: jobs that move to another one, and jobs that go on in a clone.

Invariants: one job runs at a time; what a clone must write is what its savepoint had not; the store
it came from stays as it was, or vanishes once the clone has a checkpoint of its own.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.simulator.checks.violation import Property
from tests.simulator.jobs.plan import Records
from tests.simulator.machine.incarnation import Incarnation
from tests.simulator.machine.network import Network, StoreClient, Truth
from tests.simulator.machine.process import Process
from tests.simulator.run.world import World
from tidelog import RestoreFrom, Savepoint
from tidelog.runtime.tasks.sink_output import token_of

_VANISHES: Final = 0.5
_LOOKS_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class _Origin:
    """A savepoint, and all transactions on the way from the first record to it."""

    network: Network
    savepoint: Savepoint
    transactions: frozenset[bytes]
    keep_output: bool = False


class BranchingWorld(World):
    """One run over several stores."""

    _from: _Origin | None = None
    """Where the job of the store in use began."""
    _elsewhere: Records
    """What was written on the way to where it began, into outputs of others."""

    async def _operate(self) -> None:
        self.checker.expects_all = False
        self._committed: dict[bytes, tuple[str, Sequence[Any]]] = {}
        self._elsewhere = self._records(())
        await super()._operate()
        for _ in range(self.scenario.clones):
            if not (savepoints := self._savepoints()):
                return
            await self._clone(self._rng.choice(savepoints))

    def committing(
        self, sink: str, process: Process, transaction: bytes, records: Sequence[Any]
    ) -> None:
        self._committed[transaction] = sink, records
        super().committing(sink, process, transaction, records)

    async def _clone(self, origin: _Origin) -> None:
        """A job of its own that begins at a savepoint, beside the one that took it."""
        found = origin.network.truth.objects()
        self._elsewhere = self._records(origin.transactions)
        expected = self.plan.expected
        if origin.savepoint.final:
            expected = {sink: Counter() for sink in expected}
        self._outputs = {}
        self._use_another_store(
            origin, {sink: all_ - self._elsewhere[sink] for sink, all_ in expected.items()}
        )
        self.network.weather.calm = False
        await super()._operate()
        if origin.network.truth.objects() not in ({}, found):
            self.checker.blame(Property.CENSUS, "a clone changed the store that it came from")

    def _start(self) -> Incarnation:
        # It was stopped with a savepoint, or died before it committed what that holds.
        newest = self.checker.newest
        moves = self._rng.random() < self.scenario.moves and not self.network.weather.calm
        if moves and isinstance(newest, Savepoint) and not newest.final:
            self._move(newest)
        return super()._start()

    def _move(self, newest: Savepoint) -> None:
        """The job goes on in another store, with the output that it has."""
        before = self.checker
        origin = _Origin(self.network, newest, self._way_to(newest), keep_output=True)
        self._use_another_store(origin, before.expected)
        self.checker.committed = before.committed
        self.checker.durable |= before.durable

    def _use_another_store(self, origin: _Origin, expected: Records) -> None:
        violated = self.checker.violated
        truth = Truth(f"sim://store-{len(self.referees) + 1}")
        self.checker = self._checker(truth, expected)
        self.checker.expects_all, self.checker.violated = False, violated
        self.referees.append(self.checker)
        self.network = Network(truth, origin.network.weather, self._trace, self.checker)
        self._from = origin
        came_from = f"slot {origin.savepoint.slot} of {origin.network.truth.url}"
        self._note(f"goes on in {truth.url} from {came_from}")
        if self._rng.random() < _VANISHES:
            self._vanishing = asyncio.ensure_future(self._let_vanish(origin.network))

    async def _let_vanish(self, network: Network) -> None:
        """The first checkpoint makes a job independent of where it came from."""
        checker = self.checker
        while not checker.completed:
            await asyncio.sleep(_LOOKS_S)
        self._note(f"{network.truth.url} vanishes")
        network.truth.vanish()

    def _origin(self, process: Process) -> RestoreFrom | None:
        if self._from is None:
            return None
        store = StoreClient(self._from.network, process)
        name = self._from.savepoint.name
        return RestoreFrom(name, store, keep_output=self._from.keep_output)

    def _savepoints(self) -> list[_Origin]:
        return [
            _Origin(self.network, entry, self._way_to(entry))
            for entry in self.checker.slots.values()
            if isinstance(entry, Savepoint)
        ]

    def _way_to(self, savepoint: Savepoint) -> frozenset[bytes]:
        """All transactions that the savepoint and those before it hold."""
        held = [
            token_of(transaction)
            for completed in self.checker.completed
            if completed.entry.slot <= savepoint.slot
            for _, subtask in completed.entry.subtasks()
            for transaction in subtask.transactions
        ]
        before = self._from.transactions if self._from is not None else frozenset()
        return before | frozenset(held)

    def _records(self, transactions: Iterable[bytes]) -> Records:
        """What was committed with them."""
        found: Records = {sink: Counter() for sink in self.plan.expected}
        for transaction in transactions:
            sink, records = self._committed[transaction]
            found[sink].update(records)
        return found

    def _check_outputs(self) -> None:
        newest = self.checker.newest
        # The job of this store ended with a savepoint; the clone of an end has none.
        if isinstance(newest, Savepoint) and newest.final:
            self._note("it was drained")
            committed = self.checker.committed
            way = {s: e + committed.get(s, Counter()) for s, e in self._elsewhere.items()}
            assert self.plan.drained is not None
            expected = self.plan.drained(way)
            if expected is None:
                self.checker.blame(Property.EXACTLY_ONCE, "a drained job has left records out")
                return
            self.checker.expected = {s: all_ - self._elsewhere[s] for s, all_ in expected.items()}
        super()._check_outputs()
