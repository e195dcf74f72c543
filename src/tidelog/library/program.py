"""The program as the caller of its job: its states, its position, and where its steps end.

Invariants: the position is state like any other, so it is in the same checkpoint as the changes of
the step that it ends; a checkpoint captures no step that has not ended.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from copy import deepcopy
from typing import Any, Final, Generic, TypeVar

from tidelog.errors import ConfigError
from tidelog.events import Event
from tidelog.ids import CheckpointId
from tidelog.library.event_loop import LoopLock
from tidelog.library.handles import KeyStates, states_of_keys
from tidelog.library.scan import ScanPart
from tidelog.library.state_lock import StateLock
from tidelog.library.states import (
    NO_KEY,
    POSITION_SCHEMAS,
    NamedState,
    State,
    declared_state,
    decoded_positions,
    named_state,
    position_values,
    stored_positions,
)
from tidelog.runtime.channels.messages import SideBatch
from tidelog.runtime.operators.operator import Operator, OperatorContext
from tidelog.state.handles.keyed import MapState
from tidelog.state.key_groups import AS_THEY_ARE, checked_key, key_group
from tidelog.state.registry import POSITIONS

L = TypeVar("L", bound=StateLock)

logger = logging.getLogger(__name__)

_LEAST: Final = -(1 << 63)
_MOST: Final = (1 << 63) - 1
_LONG_STEP_S: Final = 5.0
"""After this time a warning names the threads whose step a checkpoint waits for."""
_PORTION: Final = 1024
"""Records that a sink gets at a time."""


class StatesOperator(Operator):
    """Declares the states of a program."""

    def __init__(self, declared: Mapping[str, State]) -> None:
        self._declared = declared
        self.states: dict[str, NamedState] = {}

    def open(self, context: OperatorContext) -> None:
        self.backend = context.backend
        self.states = {
            name: declared_state(context.backend, name, each)
            for name, each in self._declared.items()
        }
        self.position = MapState(context.backend, POSITIONS, *POSITION_SCHEMAS)


class Program(Generic[L]):
    """A program's threads or tasks on one side; on the other it is the job's `Caller`."""

    def __init__(
        self,
        declared: Mapping[str, State],
        sinks: Iterable[str],
        loop_lock: LoopLock,
        lock: type[L],
        ending: Callable[[], Exception],
        abandoned: Callable[[str], None],
        *,
        skip_unchanged_checkpoints: bool,
    ) -> None:
        """`ending` and `abandoned` are those of the lock."""
        self.lock = lock(loop_lock, self._look, ending, abandoned)
        self.skip_unchanged_checkpoints = skip_unchanged_checkpoints
        self.began: Future[None] = Future()
        """Done when the states are restored."""
        self.durable: dict[Any, Any] = {}
        """The position of each partition in the last durable checkpoint."""
        self._positions: dict[Any, Any] = {}
        """The positions that are state ..."""
        self._names: dict[Any, Any] = {}
        """Each of their partitions by itself: 1 and 1.0 are one, and stored as it came first."""
        self._moved: dict[Any, Any] = {}
        """... newer ones that will be with the next checkpoint ..."""
        self._captured: dict[CheckpointId, dict[Any, Any]] = {}
        """... and those in checkpoints that are not durable yet."""
        self._emitted: dict[str, list[Any]] = {name: [] for name in sinks}
        """Records for each sink that are not on their way to it yet."""
        self._position_values = position_values()
        self._declared = declared
        self._operator = StatesOperator(declared)
        self._wake: Callable[[], None] = lambda: None

    # What the program's threads or tasks do.

    @property
    def position(self) -> dict[Any, Any] | None:
        """A copy of what is durable, which the program may change; None when that is nothing."""
        return deepcopy(self.durable) or None

    def key(self, key: Any) -> KeyStates:
        encoded = checked_key("key", key)
        prefix = key_group(encoded, self.backend.key_groups).to_bytes(2, "big")
        return self._key_states(prefix, encoded)

    def part(self, name: str) -> ScanPart:
        """A state of the program, to be scanned; raises ConfigError for one it has not."""
        return ScanPart(self.lock, self.backend, named_state(self._operator.states, name))

    def write(self, sink: str, record: Any) -> None:
        """Write a record to a sink: a change of the caller's step."""
        records = self._emitted.get(sink)
        if records is None:
            raise ConfigError(
                f"sink {sink!r}",
                expected=f"one of {', '.join(self._emitted) or 'none'}",
                found="none of that name",
                action="name it in sinks= when the database is opened",
            )
        lock = self.lock
        with lock.held:
            if lock.busy:
                lock.yield_to_loop()
            lock.changing()
            records.append(record)

    def advance(self, partition: Any, position: Any) -> None:
        """Note a position, and end the step of the caller unless it is in a block."""
        # Most positions are offsets; the program may change others, such as a dict of them.
        if position.__class__ is not int or not _LEAST <= position <= _MOST:
            values = self._position_values
            position = values.decode(values.encode(position))
        if partition.__class__ not in AS_THEY_ARE or not (
            partition in self._positions or partition in self._moved
        ):
            checked_key("partition", partition)
        lock = self.lock
        with lock.held:
            if lock.busy:
                lock.yield_to_loop()
            lock.advancing()
            self._moved[partition] = position

    def _look(self) -> None:
        self._wake()

    # What the task of its state does: the methods of `Caller`.

    def operator(self) -> Operator:
        """A new operator; the newest one is that of the task."""
        self._operator = StatesOperator(self._declared)
        return self._operator

    def begin(self, wake: asyncio.Event) -> None:
        operator = self._operator
        self._wake = _setter(wake)
        self.backend = operator.backend
        self.backend.buffer.read.look = self._look
        self._key_states = states_of_keys(self.lock, self.backend, operator.states)
        self.durable = decoded_positions(stored_positions(self.backend, operator.position))
        self._positions = dict(self.durable)
        self._names = {name: name for name in self.durable}
        self.lock.begin()
        self.began.set_result(None)

    @asynccontextmanager
    async def held(self, given_up: asyncio.Event) -> AsyncIterator[bool]:
        lock, none_open = self.lock, asyncio.Event()
        warned_after_s: float | None = _LONG_STEP_S
        lock.block_steps(_setter(none_open))
        giving_up = asyncio.ensure_future(given_up.wait())
        try:
            # A thread in a step of another database may have begun one here in the meantime.
            while lock.open_steps and not giving_up.done():
                none_open.clear()
                waiting = asyncio.ensure_future(none_open.wait())
                await asyncio.wait(
                    [waiting, giving_up],
                    timeout=warned_after_s,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if not waiting.done() and not giving_up.done():
                    Event.STEP_AWAITED.log(logger, seconds=warned_after_s, threads=self.in_step)
                    warned_after_s = None
                waiting.cancel()
            held = not lock.open_steps
            if held:
                lock.pause(True)
            else:
                lock.allow_steps()
            yield held
        finally:
            giving_up.cancel()
            lock.pause(False)
            lock.allow_steps()

    def emitted(self) -> list[SideBatch]:
        batches = []
        for name, records in self._emitted.items():
            for at in range(0, len(records), _PORTION):
                batches.append(SideBatch(records[at : at + _PORTION], tag=name))
            records.clear()
        return batches

    def capture(self, checkpoint: CheckpointId) -> None:
        # Positions become state here, not with every step.
        self.backend.use_encoded_key(NO_KEY)
        for partition, position in self._moved.items():
            name = checked_key("partition", self._names.setdefault(partition, partition))
            value = self._position_values.encode(position)
            self._operator.position.updateValue((name,), (value,))
        self._positions = self._captured[checkpoint] = self._positions | self._moved
        self._moved.clear()

    def completed(self, checkpoint: CheckpointId) -> None:
        for each in [each for each in self._captured if each <= checkpoint]:
            self.durable = self._captured.pop(each)

    def end(self) -> None:
        self.lock.end()

    def rest(self) -> None:
        self.lock.look_at_next()

    @property
    def moved(self) -> bool:
        return bool(self._moved) or any(self._emitted.values())

    @property
    def in_step(self) -> str:
        return ", ".join(self.lock.open_steps)

    @contextmanager
    def paused(self) -> Iterator[None]:
        self.lock.pause(True)
        try:
            yield
        finally:
            self.lock.pause(False)


def _setter(event: asyncio.Event) -> Callable[[], None]:
    """What sets an event of the running loop, called in any thread."""
    loop = asyncio.get_running_loop()

    def set_event() -> None:
        loop.call_soon_threadsafe(event.set)

    return set_event
