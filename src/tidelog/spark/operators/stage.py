"""A stage of a query: what is done to records between two exchanges, in one pass.

A stage begins with a source or a keyed operator; its steps are the operators without state behind
it. A branch is where records leave it: to a keyed operator, with their keys, or to a sink.

Invariants: a plan of a stage travels to executors, so it has functions and no sources or sinks; a
step gets the records of the step before it in their order.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from tidelog.effects import SystemClock
from tidelog.runtime.channels.buffers import BufferLimit
from tidelog.runtime.channels.copies import copy_of
from tidelog.runtime.channels.messages import Batch, KeyedBatch, SideBatch
from tidelog.runtime.channels.partition import ByKey
from tidelog.runtime.operators.event_time import AssignEventTime
from tidelog.runtime.operators.operator import Operator, OperatorContext, OperatorFactory
from tidelog.runtime.user_code import named_call
from tidelog.spark.operators.input_times import Mark
from tidelog.spark.operators.records import Origin, encode_batch
from tidelog.state.key_groups import range_of
from tidelog.state.objects.classes import RecordTypes
from tidelog.state.registry import StateRegistry
from tidelog.state.schema.types import DeclaredType, KnownTypes, parse_type
from tidelog.state.unlogged import backend_without_log
from tidelog.table.memory import MemoryTable

WAITING_RECORDS: Final = 32_768
"""Records of a branch that wait for others of their key groups, so that these are few buffers."""
_LIMIT: Final = BufferLimit()


class Branch(msgspec.Struct, frozen=True, eq=False):
    """Where records leave a stage."""

    number: int
    target: str
    """The keyed operator or the sink."""
    key_of: Callable[[Any], Any] | None = None
    """None: to a sink."""
    key_types: DeclaredType | None = None
    stored_key_types: tuple[str, ...] = ()
    side: int = 0
    key_groups: int = 1
    input: str | None = None
    """What the target calls the watermarks of these records; None: it has no event time."""
    marked_by: str | None = None
    """The step that makes these watermarks; None: the operator that the stage begins with."""


class Route(msgspec.Struct, frozen=True, eq=False):
    """Where the output of a step goes; `tag` is that of a side output."""

    tag: str | None
    to: "str | Branch"


class Step(msgspec.Struct, frozen=True, eq=False):
    """An operator without state."""

    name: str
    operator: OperatorFactory


class StagePlan(msgspec.Struct, frozen=True, eq=False):
    """What a stage does behind its source or its keyed operator, `head`."""

    head: str
    steps: tuple[Step, ...]
    routes: dict[str, tuple[Route, ...]]
    """By the name of the head or the step."""
    record_types: tuple[type, ...] = ()


class Output(NamedTuple):
    """A row that leaves a stage: a buffer, a `Mark`, or a number of late records."""

    branch: int
    group: int | None = None
    data: bytes | None = None
    times: bytes | None = None
    late: int | None = None


NOWHERE: Final = -1
"""The branch of a number of late records, which no operator gets."""


class _Waiting(NamedTuple):
    """Records of a branch that wait for others."""

    batch: Batch
    passed: int | None
    """The watermark of their split before them."""


class Stage:
    """A plan that runs: in a task of Spark, for the records of one partition and batch."""

    def __init__(self, plan: StagePlan, split: str) -> None:
        """`split` is the name of what the records leave as."""
        self.types = RecordTypes(plan.record_types)
        self._plan = plan
        self._split = split
        self._number = 0
        self._waiting: dict[int, list[_Waiting]] = {}
        self._counts: dict[int, int] = {}
        self._branches: dict[int, Branch] = {}
        self._partitioners: dict[int, ByKey] = {}
        self._operators: dict[str, Operator] = {}
        self._makers: dict[str, AssignEventTime] = {}
        """The operators that make watermarks."""
        self._passed: dict[str, int | None] = {}
        """By step the watermark of the split before the records that are pushed."""
        self._marked: dict[int, dict[Hashable, int]] = {}
        for step in plan.steps:
            with _call(step.name):
                self._operators[step.name] = operator = step.operator()
                operator.open(_context(step.name))
            if isinstance(operator, AssignEventTime):
                self._makers[step.name] = operator
        for routes in plan.routes.values():
            for branch in (route.to for route in routes if isinstance(route.to, Branch)):
                self._branches[branch.number] = branch
                if branch.key_of is not None:
                    self._partitioners[branch.number] = _partitioner(branch)

    def read_from(self, split: str) -> None:
        """The records that follow are of this split of the source."""
        self._split, self._number = split, 0
        for maker in self._makers.values():
            maker.read_from(split)

    def read_on(self, origin: str) -> None:
        """The output of a key group follows; event time after it is one for all of them."""
        self.read_from(self._plan.head)
        self._split = origin

    def read(self, records: list[Any]) -> Iterator[Output]:
        """Records of the split, in the buffers of an embedded source: each moves event time."""
        for batch in _LIMIT.parts(Batch(records)):
            for name, maker in self._makers.items():
                self._passed[name] = maker.watermark_of(self._split)
            yield from self.push((batch,))

    def push(self, batches: Iterable[Batch], name: str | None = None) -> Iterator[Output]:
        """Records of the head, or of the step of this name; yields buffers that are full."""
        name = self._plan.head if name is None else name
        for batch in batches:
            if not batch.records:
                continue
            tag = batch.tag if isinstance(batch, SideBatch) else None
            routes = [route for route in self._plan.routes.get(name, ()) if route.tag == tag]
            for remaining, route in enumerate(reversed(routes)):
                # Functions may change records, and others get them, too.
                part = copy_of(batch) if remaining < len(routes) - 1 else batch
                if isinstance(route.to, Branch):
                    yield from self._leave(route.to, part)
                else:
                    yield from self.push(self._made(route.to, part), route.to)

    def flush(self) -> Iterator[Output]:
        """Push the records on that wait for a full buffer."""
        for number in sorted(self._waiting):
            yield from self._cut(self._branches[number])

    def marks(self, ended: Collection[str] | None = ()) -> Iterator[Output]:
        """The watermarks that steps have made since the last call, with the splits that have
        `ended`; None: all have, and no other batch has any of them.
        """
        for number, branch in self._branches.items():
            maker = self._makers.get(branch.marked_by or "")
            if branch.input is None or maker is None:
                continue
            before, watermarks = self._marked.get(number), maker.watermarks
            if watermarks == (before or {}) and not ended:
                continue
            self._marked[number] = watermarks
            if ended is None:  # the greatest one says all, and there may be thousands of files
                head = self._plan.head
                mark = Mark(branch.input, {head: max(watermarks.values())}, (head,))
            else:
                texts = {str(split): watermark for split, watermark in watermarks.items()}
                mark = Mark(branch.input, texts, tuple(ended))
            yield from _to_all(branch, mark)

    def forward(self, watermark: int, *, is_idle: bool) -> Iterator[Output]:
        """The watermark of the operator that the stage begins with."""
        for branch in self._branches.values():
            if branch.input is not None and branch.marked_by is None:
                mark = Mark(branch.input, {self._plan.head: watermark}, is_idle=is_idle)
                yield from _to_all(branch, mark)

    def close(self) -> None:
        for operator in self._operators.values():
            operator.close()

    def _made(self, name: str, batch: Batch) -> Iterator[Batch]:
        with _call(name):
            yield from self._operators[name].process(Batch(batch.records, batch.times))

    def _leave(self, branch: Branch, batch: Batch) -> Iterator[Output]:
        number = branch.number
        passed = self._passed.get(branch.marked_by or "")
        self._waiting.setdefault(number, []).append(_Waiting(batch, passed))
        self._counts[number] = self._counts.get(number, 0) + len(batch.records)
        if self._counts[number] >= WAITING_RECORDS:
            yield from self._cut(branch)

    def _cut(self, branch: Branch) -> Iterator[Output]:
        waiting = self._waiting.pop(branch.number, [])
        self._counts[branch.number] = 0
        if not waiting:
            return
        joined = _joined([batch for batch, _ in waiting])
        partitioner = self._partitioners.get(branch.number)
        if partitioner is None:
            yield self._output(branch, None, joined)
            return
        passed = _may_be_late(waiting)
        for group, positions, batch in _by_group(partitioner, joined):
            late_by = passed and [passed[position] for position in positions]
            yield self._output(branch, int.from_bytes(group, "big"), batch, late_by)

    def _output(
        self,
        branch: Branch,
        group: int | None,
        batch: Batch,
        passed: list[int | None] | None = None,
    ) -> Output:
        self._number += 1
        data = encode_batch(batch, Origin(self._split, self._number), self.types, passed)
        return Output(branch.number, group, data)


def _to_all(branch: Branch, mark: Mark) -> Iterator[Output]:
    """A mark for each key group of the target."""
    data = mark.encoded()
    for group in range(branch.key_groups):
        yield Output(branch.number, group, times=data)


def _may_be_late(waiting: list[_Waiting]) -> list[int | None] | None:
    """For each record at or below the watermark of its split that watermark; None: for none."""
    passed: list[int | None] = []
    for batch, watermark in waiting:
        if watermark is None or batch.times is None:
            passed += [None] * len(batch)
        else:
            passed += [watermark if time <= watermark else None for time in batch.times]
    return passed if any(watermark is not None for watermark in passed) else None


def _call(name: str) -> named_call:
    return named_call(name, lambda: f"operator {name!r}")


def _joined(batches: list[Batch]) -> Batch:
    """Several buffers as one."""
    records: list[Any] = []
    times: list[int] | None = []
    for batch in batches:
        records += batch.records
        times = None if times is None or batch.times is None else times + batch.times
    return Batch(records, times)


def _by_group(partitioner: ByKey, batch: Batch) -> Iterator[tuple[bytes, list[int], KeyedBatch]]:
    """Each key group, the positions of its records and these."""
    for _, routed in partitioner.route(batch):
        assert isinstance(routed, KeyedBatch)
        positions: dict[bytes, list[int]] = {}
        for position, group in enumerate(routed.groups):
            positions.setdefault(group, []).append(position)
        for group, of_group in positions.items():
            yield group, of_group, routed.picked(of_group)


def _partitioner(branch: Branch) -> ByKey:
    assert branch.key_of is not None
    known_types = frozenset(map(parse_type, branch.stored_key_types))
    types = KnownTypes(f"keys of operator {branch.target!r}", known_types, branch.key_types)
    name = f"key_by before operator {branch.target!r}"
    return ByKey(branch.key_of, 1, branch.key_groups, name, types, branch.side)


def _context(name: str) -> OperatorContext:
    """That of an operator without state."""
    clock = SystemClock()
    owned = range_of(0, 1, 1)
    backend = backend_without_log(StateRegistry(name), 1, owned, MemoryTable(), clock)
    return OperatorContext(clock, backend, operator=name)
