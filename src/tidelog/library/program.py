"""A program as the `Caller` of the task that has its states.

Invariants: a position is state like any other, so it is in the same checkpoint as the changes of
the step that it ends; a checkpoint holds no part of a step that has not ended.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from copy import deepcopy
from typing import Any, Final

from tidelog.changelog.state_rows import StateRows
from tidelog.checkpoint.config import Change
from tidelog.effects import Clock, wait_for
from tidelog.errors import ConfigError, require
from tidelog.events import Event
from tidelog.ids import CheckpointId
from tidelog.library.event_loop import LoopLock
from tidelog.library.handles import KeyStates, states_of_keys
from tidelog.library.scan import ScanPart
from tidelog.library.states import State, ValueState, declared_states
from tidelog.library.steps import Steps
from tidelog.runtime.channels.messages import SideBatch
from tidelog.runtime.operators.operator import Operator, OperatorContext
from tidelog.state.key_groups import checked_key, checksum, encode_key
from tidelog.state.positions import Positions
from tidelog.state.stored_states import NamedState, named_state

logger = logging.getLogger(__name__)

_LONG_STEP_S: Final = 5.0
"""After this time a warning names the threads whose step a checkpoint waits for."""
_FLUSH_CHECK_S: Final = 0.05
"""Between two checks whether a flush is due, while a checkpoint waits for open steps."""
_FULL_MEMORY_PAUSE_S: Final = 0.01
"""A caller that has written much waits so long where memory is full: the loop frees some then."""
_SINK_BATCH: Final = 1024
"""Records that a sink gets at a time."""


class StatesOperator(Operator):
    """Declares the states of a program."""

    def __init__(self, declared: Mapping[str, State]) -> None:
        self._declared = declared
        self.states: dict[str, NamedState] = {}

    def open(self, context: OperatorContext) -> None:
        self.backend = context.backend
        self.states = declared_states(context.backend, self._declared)
        self.positions = Positions(context.backend)


class Program:
    """Does what databases ask for, and is the job's `Caller`."""

    def __init__(
        self,
        declared: Mapping[str, State],
        sinks: Iterable[str],
        loop_lock: LoopLock,
        steps: type[Steps],
        clock: Clock,
        end_error: Callable[[], Exception],
        on_abandoned_step: Callable[[str], None],
    ) -> None:
        """`end_error` and `abandoned` are those of the steps."""
        self._clock = clock
        self.steps = steps(loop_lock, self._wake_loop, end_error, on_abandoned_step)
        self.restored: Future[None] = Future()
        """Done when the states are restored."""
        self._sink_records: dict[str, list[Any]] = {name: [] for name in sinks}
        """Records for each sink that the task has not taken yet."""
        self._declared = declared
        self._operator = StatesOperator(declared)
        self._wake = asyncio.Event()

    # What the program's threads or tasks do.

    @property
    def position(self) -> dict[Any, Any] | None:
        """A copy of the durable positions, which the program may change; None without any."""
        return deepcopy(self._positions.durable) or None

    def key(self, key: Any) -> KeyStates:
        """The states of a key: a str, int (64 bits), bool, bytes, float, None or a tuple of these.

        It holds no state itself, and may be used again at any time.
        """
        # Not `checked_key` for the most common keys: its call costs as much as the encoding.
        is_plain = key.__class__ is str and key.isascii()
        encoded = encode_key(key) if is_plain else checked_key("key", key)
        prefixes = self._prefixes
        return self._key_states(prefixes[checksum(encoded) % len(prefixes)], encoded)

    def scan_part(self, name: str) -> ScanPart:
        """A state that is to be scanned; raises ConfigError for an unknown name."""
        return ScanPart(self.steps, self.backend, named_state(self._operator.states, name))

    def write(self, sink: str, record: Any) -> None:
        """Write a record to a sink: a change of the caller's step."""
        records = self._sink_records.get(sink)
        if records is None:
            raise ConfigError(
                f"sink {sink!r}",
                expected=f"one of {', '.join(self._sink_records) or 'none'}",
                found="none of that name",
                action="name it in sinks= when the database is opened",
            )
        self.steps.change(records.append, record)

    def advance(self, partition: Any, position: Any) -> None:
        """All that belongs to this position of a partition is done: a part of the caller's step.

        Outside of blocks it ends the step: a checkpoint holds all changes that the calling thread
        has made since its last step, and this position, or none of them. Raises ConfigError there
        in any thread but the first to make a change outside of blocks, and in tasks.
        """
        positions = self._positions
        self.steps.advance(positions.pending, partition, positions.checked(partition, position))

    def apply(
        self, name: str, values: Iterable[tuple[Any, Any]], partition: Any, position: Any
    ) -> None:
        """Set the value of each key; a `position` that is not None ends the step."""
        keyed = named_state(self._operator.states, name).state.keyed
        state = self._declared[name]
        is_value = isinstance(state, ValueState)
        require(f"apply to state {name!r}", type(state).__name__, is_value, "a ValueState")
        hold, state_row, prefixes = keyed.codec.hold, keyed.row_of(b"", b""), self._prefixes
        rows: dict[bytes, Any] = {}
        for key, value in values:
            is_plain = key.__class__ is str and key.isascii()
            encoded = encode_key(key) if is_plain else checked_key("key", key)
            prefix = prefixes[checksum(encoded) % len(prefixes)]
            rows[prefix + state_row + encoded] = hold((value,))
        if position is not None:
            position = self._positions.checked(partition, position)
        self.steps.change(self._put_many, keyed.rows, rows)
        if position is not None:
            self.steps.advance(self._positions.pending, partition, position)

    def _put_many(self, rows: StateRows, values: Mapping[bytes, Any]) -> None:
        rows.put_many(values)
        self.steps.changes += len(values)

    def _wake_loop(self) -> float:
        self._event_loop.call_soon_threadsafe(self._wake.set)
        return _FULL_MEMORY_PAUSE_S if self.backend.crowded else 0.0

    # What the task of its state does: the methods of `Caller`.

    def operator(self) -> Operator:
        """A new operator; the newest one is that of the task."""
        self._operator = StatesOperator(self._declared)
        return self._operator

    def begin(self, wake: asyncio.Event) -> None:
        operator = self._operator
        self._wake, self._event_loop = wake, asyncio.get_running_loop()
        self.overdue_step: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """The names of those whose open step a checkpoint was given up for."""
        self.backend = operator.backend
        self._prefixes = [n.to_bytes(2, "big") for n in range(self.backend.key_groups)]
        self.backend.buffer.read.look = self._wake_loop
        self.backend.buffer.written.look = self.steps.wake_loop_at_next_change
        self._key_states = states_of_keys(self.steps, self.backend, operator.states)
        self._positions = operator.positions
        self._positions.begin()
        self.steps.begin()
        self.restored.set_result(None)

    @asynccontextmanager
    async def exclusive(
        self, aborted: asyncio.Event, meanwhile: Callable[[], Awaitable[None]]
    ) -> AsyncIterator[bool]:
        steps, since, warned = self.steps, self._clock.monotonic(), False
        steps.block_steps(self._wake_loop)
        try:
            # A thread in a step of another database may have begun one here in the meantime.
            while steps.open_steps and not aborted.is_set():
                await wait_for(self._wake, self._clock, _FLUSH_CHECK_S)
                self._wake.clear()
                await meanwhile()
                if not warned and self._clock.monotonic() - since >= _LONG_STEP_S:
                    warned = True
                    Event.STEP_AWAITED.log(logger, seconds=_LONG_STEP_S, callers=self.open_steps)
            if is_whole := not steps.open_steps:
                steps.pause(True)
            else:
                self.overdue_step.set_result(self.open_steps)
                self.overdue_step = asyncio.get_running_loop().create_future()
                steps.block_steps(None)
            yield is_whole
        finally:
            steps.pause(False)
            steps.block_steps(None)

    def take_sink_batches(self) -> list[SideBatch]:
        batches = []
        for name, records in self._sink_records.items():
            for begin in range(0, len(records), _SINK_BATCH):
                batches.append(SideBatch(records[begin : begin + _SINK_BATCH], tag=name))
            records.clear()
        return batches

    def capture(self, checkpoint: CheckpointId) -> None:
        self._positions.capture(checkpoint)

    def completed(self, checkpoint: CheckpointId) -> None:
        self._positions.completed(checkpoint)

    def end(self) -> None:
        self.steps.end()

    def block_steps(self, blocked: bool) -> None:
        self.steps.block_steps(self._wake_loop if blocked else None)

    def wake_at_next_change(self) -> None:
        self.steps.wake_loop_at_next_change()

    @property
    def change(self) -> Change:
        if any(self._sink_records.values()):
            return Change.STATE
        return Change.POSITION if self.restored.done() and self._positions.pending else Change.NONE

    @property
    def open_steps(self) -> str:
        return ", ".join(self.steps.open_steps)

    @contextmanager
    def paused(self) -> Iterator[None]:
        self.steps.pause(True)
        try:
            yield
        finally:
            self.steps.pause(False)
