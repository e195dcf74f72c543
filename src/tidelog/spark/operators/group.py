"""A keyed operator of a job in `transformWithState`: what Spark calls for a key group.

The operator is the job's own, opened for each call over the rows of the key group, as a subtask
that owns nothing else. Invariants: a call leaves all changes in Spark's state, or raises; records
are handled and timers fired in the order of an embedded subtask; nothing of an operator outlives
its call but its rows and its event time.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final, Literal, NamedTuple

import msgspec

from tidelog.changelog.change import prefix_end
from tidelog.checkpoint.manifest import StateInfo
from tidelog.effects import SystemClock
from tidelog.ids import KeyGroup, SeqNo
from tidelog.runtime.channels.messages import Batch, KeyedBatch
from tidelog.runtime.operators.operator import Operator, OperatorContext, OperatorFactory
from tidelog.runtime.user_code import named_call
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
from tidelog.spark.operators.records import BRANCH, DATA, MARK, decode_batches
from tidelog.spark.operators.stage import Output, Stage, StagePlan
from tidelog.state.backend import KeyedBackend
from tidelog.state.event_time import UNKNOWN, EventTime
from tidelog.state.handles.timers import TIME, decode_time
from tidelog.state.key_groups import KeyGroupRange, checksum
from tidelog.state.registry import StateRegistry
from tidelog.state.schema.types import DeclaredType, KnownTypes, parse_type
from tidelog.state.unlogged import backend_without_log

Time = Literal["none", "processing", "event"]

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
    time: Time
    stage: StagePlan
    follows_operator: bool = False
    """Its records come from another keyed operator, which has the watermark of the same batch."""
    key_types: DeclaredType | None = None
    value_types: DeclaredType | None = None


class _GroupState(NamedTuple):
    """The value of the state of a key group."""

    watermark: int | None = None
    due: int | None = None
    seqno: int = 0
    depth: int = 0
    root: bytes = b""
    next_number: int = 0

    @property
    def tree(self) -> Tree:
        return Tree(self.depth, bytes(self.root or b""), self.next_number or 0)


_NONE: Final = _GroupState()
"""That of a key group without rows."""


class _Times(NamedTuple):
    """The times of a batch."""

    watermark: int
    now_ms: int


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

    def __init__(self, output: Output, mark: Any) -> None:
        self._values = {
            BRANCH: output.branch,
            GROUP: output.group,
            DATA: output.data,
            MARK: mark,
        }

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
        """Records of one key group in this batch."""
        data, now_ms = list[bytes](), 0
        for row in rows:
            data.append(bytes(row[DATA]))
            now_ms = row.tidelog_now
        return self._run(key[0], self._times(timerValues, now_ms), data)

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Any]:
        """Something of the key group is due; Spark removes its timer afterwards."""
        return self._run(key[0], self._times(timerValues, 0), [])

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        """Take over rows of the key group; several calls have different ones."""
        number, description = key[0], self._plan.description
        group = number.to_bytes(2, "big")
        state = self._stored()
        table = PagedTable(group, state.tree, self._pages)
        rows = unpack(bytes(initialState.tidelog_rows))
        table.write([group + entry for entry, _ in rows], [value for _, value in rows])
        watermark = self._start.of(group)
        due = self._due(table, group, description.states, watermark)
        seqno = description.seqno
        self._keep(state, _GroupState(_known(watermark), due, seqno, *table.store()))

    def close(self) -> None:
        """The end of the partition's batch."""
        if self._stage is not None:
            self._stage.close()

    def _times(self, values: Any, now_ms: int) -> _Times:
        """The times of this call. In a query without times they are the time of the batch."""
        if self._plan.time == "none":
            return _Times(UNKNOWN, now_ms)
        watermark = values.getCurrentWatermarkInMs() if self._plan.time == "event" else 0
        return _Times(watermark or UNKNOWN, values.getCurrentProcessingTimeInMs())

    def _run(self, number: int, times: _Times, data: list[bytes]) -> Iterator[Any]:
        plan, group = self._plan, number.to_bytes(2, "big")
        name, state = plan.description.operator, self._stored()
        stage = self._stage = self._stage or Stage(plan.stage, name)
        stage.read_from(f"{name}/{number}")
        table = PagedTable(group, state.tree, self._pages)
        backend = self._backend(number, table, times.now_ms)
        backend.event_time = EventTime(
            self._start.of(group) if state.watermark is None else state.watermark
        )
        backend.seqno = SeqNo(max(state.seqno, plan.description.seqno))
        mark = 1000 * (max(times.watermark, 0) + 1) if plan.time == "event" else None
        with named_call(name, lambda: f"operator {name!r}"):
            operator = plan.operator()
            clock = _BatchClock(times.now_ms)
            try:
                operator.open(OperatorContext(clock, backend, operator=name))
                produced = self._handled(operator, decode_batches(data, group, stage.types), times)
                for output in stage.push(produced):
                    yield OutputRow(output, mark)
            finally:
                operator.close()
        for output in stage.flush():
            yield OutputRow(output, mark)
        backend.flush()
        _remove_expired(backend, table, group)
        watermark, infos = backend.event_time.watermark, backend.registry.infos()
        due = self._due(table, group, infos, max(watermark, times.watermark))
        self._keep(state, _GroupState(_known(watermark), due, backend.seqno, *table.store()))

    def _handled(
        self, operator: Operator, batches: list[KeyedBatch], times: _Times
    ) -> Iterator[Batch]:
        """What is due, then records; those of an operator before this one are not late by the
        watermark that made them.
        """
        if not self._plan.follows_operator:
            yield from self._fired(operator, times)
        for batch in batches:
            yield from operator.process(batch)
        if self._plan.follows_operator or self._plan.time == "processing":
            yield from self._fired(operator, times)

    def _fired(self, operator: Operator, times: _Times) -> Iterable[Batch]:
        if self._plan.time == "processing":
            return operator.tick(times.now_ms)
        return operator.watermark(times.watermark) if times.watermark != UNKNOWN else ()

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
        if not after.depth and not after.root:
            after = _NONE
        if after.due != before.due:
            if before.due is not None:
                self._handle.deleteTimer(before.due)
            if after.due is not None:
                self._handle.registerTimer(after.due)
        if after == _NONE:
            self._state.clear()
        elif after != before:
            self._state.update(after)

    def _due(
        self, table: PagedTable, group: bytes, states: Iterable[StateInfo], now: int
    ) -> int | None:
        """When the operator is to be called although it gets no records.

        What is not ordered by timers is looked through at each new watermark, as embedded.
        """
        if self._plan.time == "none":
            return None
        times: list[int] = []
        for info in states:
            prefix = group + info.id.to_bytes(2, "big")
            if info.kind == _TIMERS and not info.name.endswith(_BY_TIME):
                continue
            if info.kind != _TIMERS and not info.kind.startswith(_TIMED):
                continue
            for row, _ in islice(table.scan(prefix, prefix_end(prefix)), 1):
                times.append(decode_time(row[TIME]) if info.kind == _TIMERS else now + 1)
        # Spark's times begin at 0, and it fires what is at or below the watermark at once.
        return max(min(times), now + 1, 1) if times else None


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
