"""A keyed operator of a job in `transformWithState`: what Spark calls for a key group.

The operator is the job's own, opened for each call over the rows of the key group, as a subtask
that owns nothing else. Invariants: a call leaves all changes in Spark's state, or raises; records
are handled and timers fired in the order of an embedded subtask; nothing of an operator outlives
its call but its rows and its event time.
"""

from collections.abc import Generator, Iterable, Iterator
from itertools import islice
from typing import Any, Final, Literal, NamedTuple

import msgspec

from tidelog.changelog.change import prefix_end
from tidelog.checkpoint.manifest import StateInfo
from tidelog.effects import SystemClock
from tidelog.ids import KeyGroup, SeqNo
from tidelog.runtime.channels.messages import Batch
from tidelog.runtime.operators.operator import Operator, OperatorContext, OperatorFactory
from tidelog.runtime.user_code import named_call
from tidelog.spark.operators.input_times import InputTimes, Mark, TimeInput
from tidelog.spark.operators.layout import (
    GROUP,
    PAGE_KEY_SCHEMA,
    PAGE_SCHEMA,
    STATE_SCHEMA,
    OperatorDescription,
    pages_name,
    state_name,
    unpack,
)
from tidelog.spark.operators.pages import PagedTable, Tree
from tidelog.spark.operators.records import BRANCH, DATA, LATE, TIMES, GroupRecords, decode_batches
from tidelog.spark.operators.stage import NOWHERE, Output, Stage, StagePlan
from tidelog.state.backend import KeyedBackend
from tidelog.state.event_time import UNKNOWN, EventTime
from tidelog.state.handles.timers import TIME, decode_time
from tidelog.state.key_groups import KeyGroupRange, checksum
from tidelog.state.registry import StateRegistry
from tidelog.state.schema.types import DeclaredType, KnownTypes, parse_type
from tidelog.state.unlogged import backend_without_log

Clock = Literal["none", "processing"]
"""Which times of Spark move timers of an operator. Event time is ours."""

_FORWARDING: Final = 0
"""The key group that forwards the watermark, which is the same in all."""
_CHANGED_ROWS_PER_PAGE: Final = 8
"""So many changed rows make it due to look through another page for what has expired."""
_BY_TIME: Final = "-by-time"
"""The end of the name of a state whose rows are timers."""
_TIMERS: Final = "timers"
_TIMED: Final = "timed-"
"""The beginning of the kinds of states that are ordered by buckets of time."""


class OperatorPlan(msgspec.Struct, frozen=True, eq=False):
    """A keyed operator and the stage that begins with it."""

    operator: OperatorFactory
    description: OperatorDescription
    ticks: bool
    """Whether the operator has timers of processing time."""
    inputs: tuple[TimeInput, ...]
    """The inputs that have watermarks; none: the operator has no event time."""
    stage: StagePlan
    key_types: DeclaredType | None = None
    value_types: DeclaredType | None = None

    @property
    def clock(self) -> Clock:
        """Splits that become idle need a time of Spark, too."""
        waits = any(time_input.idle_after_ms is not None for time_input in self.inputs)
        return "processing" if self.ticks or waits else "none"


class _GroupState(NamedTuple):
    """The value of the state of a key group."""

    watermark: int | None = None
    due: int | None = None
    seqno: int = 0
    depth: int = 0
    root: bytes = b""
    next_number: int = 0
    fires: int | None = None
    times: bytes | None = None

    @property
    def tree(self) -> Tree:
        return Tree(self.depth, bytes(self.root or b""), self.next_number or 0)


_NONE: Final = _GroupState()
"""That of a key group without rows."""


class _Call(NamedTuple):
    """What a call for a key group is about."""

    now_ms: int
    """The time of the batch."""
    data: list[bytes]
    marks: list[bytes]


class _Advance(NamedTuple):
    """How event time moves in a call."""

    before: int
    watermark: int
    is_first: bool = False
    """Timers up to `before` may not have fired all, where the state comes from."""

    @property
    def fires(self) -> bool:
        return self.watermark > self.before or (self.is_first and self.before != UNKNOWN)


class Pages:
    """The pages of the current key group; `state` is pyspark's map state."""

    def __init__(self, state: Any) -> None:
        self._state = state

    def read(self, number: int) -> bytes:
        (page,) = self._state.getValue((number,))
        return bytes(page)

    def write(self, number: int, page: bytes) -> None:
        self._state.updateValue((number,), (page,))

    def remove(self, number: int) -> None:
        self._state.removeKey((number,))


class _BatchClock(SystemClock):
    """Processing time is that of the batch: a batch that is repeated has the same."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms


class OutputRow:
    """A row as pyspark asks for it."""

    __slots__ = ("_values",)

    def __init__(self, output: Output) -> None:
        self._values = dict(zip((BRANCH, GROUP, DATA, TIMES, LATE), output, strict=True))

    def asDict(self, recursive: bool = False) -> dict[str, Any]:
        return self._values


class GroupOperator:
    """The argument of pyspark's `transformWithState`; travels to the workers pickled."""

    def __init__(self, plan: OperatorPlan) -> None:
        self._plan = plan

    def init(self, handle: Any) -> None:
        """Make the states; Spark calls it once more on the driver, to ask."""
        self._handle = handle
        name = self._plan.description.operator
        self._state = handle.getValueState(state_name(name), STATE_SCHEMA)
        self._pages = Pages(handle.getMapState(pages_name(name), PAGE_KEY_SCHEMA, PAGE_SCHEMA))
        self._stage: Stage | None = None
        description = self._plan.description
        self._start = EventTime.restored(description.watermark, description.ahead)

    def handleInputRows(self, key: Any, rows: Iterable[Any], timerValues: Any) -> Iterator[Any]:
        """Records and marks of one key group in this batch."""
        now_ms, data, marks = 0, list[bytes](), list[bytes]()
        for row in rows:
            now_ms = row.tidelog_now  # the same in all
            if row[DATA] is not None:
                data.append(bytes(row[DATA]))
            else:
                marks.append(bytes(row[TIMES]))
        return map(OutputRow, self._run(key[0], _Call(now_ms, data, marks)))

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Any]:
        """Something of the key group is due; Spark removes its timer afterwards."""
        now_ms = timerValues.getCurrentProcessingTimeInMs()
        return map(OutputRow, self._run(key[0], _Call(now_ms, [], [])))

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        """Take over rows of the key group; several calls have different ones."""
        number, description = key[0], self._plan.description
        group = number.to_bytes(2, "big")
        state = self._stored()
        table = PagedTable(group, state.tree, self._pages)
        rows = unpack(bytes(initialState.tidelog_rows))
        table.write([group + entry for entry, _ in rows], [value for _, value in rows])
        watermark = self._start.of(group)
        fires = self._fires(table, group, description.states, watermark)
        due = self._due(table, group, description.states)
        after = _GroupState(_known(watermark), due, description.seqno, *table.store(), fires)
        self._keep(state, after)

    def close(self) -> None:
        """The end of the partition's batch."""
        if self._stage is not None:
            self._stage.close()

    def _run(self, number: int, call: _Call) -> Iterator[Output]:
        plan, state = self._plan, self._stored()
        times = InputTimes(plan.inputs, state.times, call.now_ms)
        for mark in call.marks:
            times.take(Mark.decoded(mark))
        start = self._start.of(number.to_bytes(2, "big"))
        before = start if state.watermark is None else state.watermark
        of_inputs = times.watermark
        watermark = before if of_inputs is None else max(before, of_inputs)
        advance = _Advance(before, watermark, is_first=state.times is None)
        after = state._replace(times=times.stored() if plan.inputs else None)
        is_due = advance.fires and state.fires is not None and state.fires <= watermark
        if call.data or is_due or plan.ticks:
            after = yield from self._operate(number, call, after, advance)
        dues = [time for time in (after.due if plan.ticks else None, times.idle_at_ms) if time]
        self._keep(state, after._replace(watermark=_known(watermark), due=min(dues, default=None)))
        if number == _FORWARDING and of_inputs is not None:
            yield from self._the_stage().forward(watermark, is_idle=times.is_idle)

    def _the_stage(self) -> Stage:
        """The stage of this task and batch."""
        self._stage = self._stage or Stage(self._plan.stage, self._plan.description.operator)
        return self._stage

    def _operate(
        self, number: int, call: _Call, state: _GroupState, advance: _Advance
    ) -> Generator[Output, None, _GroupState]:
        """Handle records and let timers fire; the state then."""
        plan, group = self._plan, number.to_bytes(2, "big")
        name, stage, watermark = plan.description.operator, self._the_stage(), advance.watermark
        stage.read_on(f"{name}/{number}")
        table = PagedTable(group, state.tree, self._pages)
        backend = self._backend(number, table, call.now_ms)
        backend.event_time = EventTime(advance.before)
        backend.seqno = SeqNo(max(state.seqno, plan.description.seqno))
        with named_call(name, lambda: f"operator {name!r}"):
            operator = plan.operator()
            try:
                operator.open(OperatorContext(_BatchClock(call.now_ms), backend, operator=name))
                records = decode_batches(call.data, group, stage.types, watermark)
                yield from stage.push(self._handled(operator, records, advance, call.now_ms))
            finally:
                operator.close()
        yield from stage.flush()
        yield from stage.marks()
        if operator.late_records:
            yield Output(NOWHERE, late=operator.late_records)
        backend.flush()
        _remove_expired(backend, table, group)
        infos = backend.registry.infos()
        fires = self._fires(table, group, infos, watermark)
        due = self._due(table, group, infos)
        return _GroupState(None, due, backend.seqno, *table.store(), fires, state.times)

    def _handled(
        self, operator: Operator, records: GroupRecords, advance: _Advance, now_ms: int
    ) -> Iterator[Batch]:
        """Records, then what is due: as a buffer comes before the watermark that it makes."""
        before = advance.before
        for batch in records.batches:
            yield from operator.process(batch)
        for time, batch in records.late:
            if time > before:
                before = time
                yield from operator.watermark(time)
            yield from operator.process(batch)
        if advance.fires:
            yield from operator.watermark(advance.watermark)
        if self._plan.ticks:
            yield from operator.tick(now_ms)

    def _backend(self, number: int, table: PagedTable, now_ms: int) -> KeyedBackend:
        plan, clock = self._plan, _BatchClock(now_ms)
        description = plan.description
        known_types = frozenset(map(parse_type, description.key_types))
        keys = KnownTypes(f"keys of operator {description.operator!r}", known_types, plan.key_types)
        return backend_without_log(
            StateRegistry(description.operator, description.states, keys, plan.value_types),
            description.key_groups,
            KeyGroupRange(KeyGroup(number), KeyGroup(number)),
            table,
            clock,
        )

    def _stored(self) -> _GroupState:
        value = self._state.get()
        return _NONE if value is None else _GroupState(*value)

    def _keep(self, before: _GroupState, after: _GroupState) -> None:
        """Store the state of the key group, and set its timer."""
        if after.due != before.due:
            if before.due is not None:
                self._handle.deleteTimer(before.due)
            if after.due is not None:
                self._handle.registerTimer(after.due)
        if not (after.depth or after.root or after.times):
            self._state.clear()
        elif after != before:
            self._state.update(after)

    def _due(self, table: PagedTable, group: bytes, states: Iterable[StateInfo]) -> int | None:
        """When its timers of processing time are to fire next."""
        if not self._plan.ticks:
            return None
        times = self._first_times(table, group, states, timed=0)
        return max(min(times), 1) if times else None  # Spark's times begin at 0

    def _fires(
        self, table: PagedTable, group: bytes, states: Iterable[StateInfo], watermark: int
    ) -> int | None:
        """The watermark at which there is something to do.

        What is not ordered by timers is looked through at each new watermark, as embedded.
        """
        if not self._plan.inputs:
            return None
        return min(self._first_times(table, group, states, timed=watermark + 1), default=None)

    def _first_times(
        self, table: PagedTable, group: bytes, states: Iterable[StateInfo], timed: int
    ) -> list[int]:
        """The first timer of each state; `timed` for one ordered by buckets of time."""
        times: list[int] = []
        for info in states:
            prefix = group + info.id.to_bytes(2, "big")
            if info.kind == _TIMERS and not info.name.endswith(_BY_TIME):
                continue
            if info.kind != _TIMERS and not info.kind.startswith(_TIMED):
                continue
            for row, _ in islice(table.scan(prefix, prefix_end(prefix)), 1):
                times.append(decode_time(row[TIME]) if info.kind == _TIMERS else timed)
        return times


def _known(watermark: int) -> int | None:
    return None if watermark == UNKNOWN else watermark


def _remove_expired(backend: KeyedBackend, table: PagedTable, group: bytes) -> None:
    """Remove what has expired of the rows that were read, and of some pages besides, as many as
    changed rows make due: nothing runs in the background.
    """
    if not backend.sweeps:
        return
    now_ms = backend.now_ms()
    pages = 1 + table.changed_rows // _CHANGED_ROWS_PER_PAGE
    table.read_some(pages, checksum(group + now_ms.to_bytes(8, "big")))
    for sweep in backend.sweeps:
        prefix = group + sweep.state
        sweep.remove_expired(table.rows_here(prefix, prefix_end(prefix)), now_ms)
    backend.flush()
