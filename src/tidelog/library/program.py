"""The program as the caller of its job: its states, its position, and where its steps end.

Invariants: the position is state like any other, so it is in the same checkpoint as the changes of
the step that it ends; a checkpoint captures no step that has not ended.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

from tidelog.errors import ConfigError
from tidelog.events import Event
from tidelog.ids import CheckpointId
from tidelog.library.declarations import State
from tidelog.library.handles import KeyStates, states_of_keys
from tidelog.library.scan import Part
from tidelog.library.state_lock import StateLock
from tidelog.library.states import (
    NO_KEY,
    POSITION_SCHEMAS,
    POSITION_VALUES,
    NamedState,
    declared_state,
    named_state,
    stored_positions,
)
from tidelog.runtime.channels.messages import SideBatch
from tidelog.runtime.operators.operator import Operator, OperatorContext
from tidelog.state.handles.map import MapState
from tidelog.state.key_groups import key_group
from tidelog.state.keys import AS_THEY_ARE, checked_key
from tidelog.state.schema.decode import POSITIONS

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

    def positions(self) -> dict[Any, Any]:
        """The position of each partition that is stored."""
        return stored_positions(self.backend, self.position)


class Program:
    """A program's threads on one side, the task of its state on the other (`Caller`)."""

    def __init__(
        self,
        declared: Mapping[str, State],
        sinks: Iterable[str],
        lock: StateLock,
        ending: Callable[[], Exception],
        abandoned: Callable[[str], None],
        *,
        skip_unchanged_checkpoints: bool = False,
    ) -> None:
        self.lock = lock
        self.skip_unchanged_checkpoints = skip_unchanged_checkpoints
        """As `Caller.skip_unchanged_checkpoints`."""
        self._ending, self._abandoned = ending, abandoned
        self.began: Future[None] = Future()
        """Done when the states are restored."""
        self.durable: dict[Any, Any] = {}
        """The position of each partition in the last durable checkpoint."""
        self._positions: dict[Any, Any] = {}
        """The positions that are state ..."""
        self._moved: dict[Any, Any] = {}
        """... newer ones that will be with the next checkpoint ..."""
        self._captured: dict[CheckpointId, dict[Any, Any]] = {}
        """... and those in checkpoints that are not durable yet."""
        self._emitted: dict[str, list[Any]] = {name: [] for name in sinks}
        """Records for each sink that are not on their way to it yet."""
        self._declared = declared
        self._operator: StatesOperator | None = None
        self._wake: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def operator(self) -> Operator:
        """A new operator; the newest one is that of the task."""
        self._operator = StatesOperator(self._declared)
        return self._operator

    def begin(self, wake: asyncio.Event) -> None:
        """Called in the event loop when the states are restored."""
        assert self._operator is not None
        self._wake, self._loop = wake, asyncio.get_running_loop()
        self.backend = self._operator.backend
        self._key_states = states_of_keys(self.lock, self.backend, self._operator.states)
        self.durable = self._operator.positions()
        self._positions = dict(self.durable)
        self.lock.begin(self._look, self._ending, self._abandoned)
        self.began.set_result(None)

    @asynccontextmanager
    async def held(self, given_up: asyncio.Event) -> AsyncIterator[bool]:
        """As `Caller.held`: no step is open in the block, and none begins."""
        loop, lock, none_open = asyncio.get_running_loop(), self.lock, asyncio.Event()
        told_in_s: float | None = _LONG_STEP_S

        def ended() -> None:
            loop.call_soon_threadsafe(none_open.set)

        lock.block_steps(ended)
        given = asyncio.ensure_future(given_up.wait())
        try:
            # A thread in a step of another database may have begun one here in the meantime.
            while lock.any_step and not given.done():
                none_open.clear()
                waiting = asyncio.ensure_future(none_open.wait())
                await asyncio.wait(
                    [waiting, given], timeout=told_in_s, return_when=asyncio.FIRST_COMPLETED
                )
                if not waiting.done() and not given.done():
                    Event.STEP_AWAITED.log(logger, seconds=told_in_s, threads=self.in_step)
                    told_in_s = None
                waiting.cancel()
            held = not lock.any_step
            if held:
                lock.pause(True)
            else:
                lock.allow_steps()
            yield held
        finally:
            given.cancel()
            lock.pause(False)
            lock.allow_steps()

    def emitted(self) -> list[SideBatch]:
        """As `Caller.emitted`."""
        batches = []
        for name, records in self._emitted.items():
            for at in range(0, len(records), _PORTION):
                batches.append(SideBatch(records[at : at + _PORTION], tag=name))
            records.clear()
        return batches

    def capture(self, checkpoint: CheckpointId) -> None:
        """As `Caller.capture`: positions become state here, not with every step."""
        assert self._operator is not None
        encode = POSITION_VALUES.encode
        self.backend.use_encoded_key(NO_KEY)
        for partition, position in self._moved.items():
            self._operator.position.updateValue(
                (checked_key("partition", partition),), (encode(position),)
            )
        self._positions = self._captured[checkpoint] = self._positions | self._moved
        self._moved.clear()

    def completed(self, checkpoint: CheckpointId) -> None:
        """As `Caller.completed`."""
        for each in [each for each in self._captured if each <= checkpoint]:
            self.durable = self._captured.pop(each)

    def end(self) -> None:
        """As `Caller.end`."""
        self.lock.end()

    def rest(self) -> None:
        """As `Caller.rest`."""
        self.lock.look_at_next()

    @property
    def moved(self) -> bool:
        """As `Caller.moved`."""
        return bool(self._moved) or any(self._emitted.values())

    @property
    def in_step(self) -> str:
        """The threads whose step is open."""
        return ", ".join(self.lock.open_steps)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """As `Caller.paused`."""
        self.lock.pause(True)
        try:
            yield
        finally:
            self.lock.pause(False)

    def key(self, key: Any) -> KeyStates:
        """The states of a key."""
        encoded = checked_key("key", key)
        prefix = key_group(encoded, self.backend.key_groups).to_bytes(2, "big")
        return self._key_states(prefix, encoded)

    def part(self, name: str) -> Part:
        """A state of the program, to be scanned; raises ConfigError for one it has not."""
        assert self._operator is not None
        named = named_state(self._operator.states, name)
        return Part(self.lock, self.backend, named)

    def write(self, sink: str, record: Any) -> None:
        """Write a record to a sink: a change of the calling thread's step."""
        records = self._emitted.get(sink)
        if records is None:
            raise ConfigError(
                f"sink {sink!r}",
                expected=f"one of {', '.join(self._emitted) or 'none'}",
                found="none of that name",
                action="name it in sinks= when the database is opened",
            )
        with self.lock:
            self.lock.changing()
            records.append(record)

    def advance(self, partition: Any, position: Any) -> None:
        """Note a position, and end the step of the calling thread unless it is in a block."""
        # Most positions are offsets.
        if position.__class__ is not int or not _LEAST <= position <= _MOST:
            POSITION_VALUES.encode(position)
        if partition.__class__ not in AS_THEY_ARE or not (
            partition in self._positions or partition in self._moved
        ):
            checked_key("partition", partition)
        lock = self.lock
        lock.take()
        try:
            if lock.busy:
                lock.yield_to_loop()
            lock.advancing()
            self._moved[partition] = position
        finally:
            lock.give()

    @property
    def in_own_step(self) -> bool:
        """Whether the calling thread has changed something since its last step ended."""
        return self.lock.in_step

    def end_step(self) -> None:
        """What the calling thread has changed may be part of a checkpoint."""
        self.lock.take()
        try:
            self.lock.end_step()
        finally:
            self.lock.give()

    def _look(self) -> None:
        assert self._loop is not None and self._wake is not None
        self._loop.call_soon_threadsafe(self._wake.set)
