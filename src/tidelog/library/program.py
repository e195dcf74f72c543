"""The program as the caller of its job: its states, its position, and where its steps end.

Invariants: the position is state like any other, so it is in the same checkpoint as the changes of
the step that it ends; a checkpoint captures no step that has not ended.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

import msgspec

from tidelog.errors import ConfigError, StateSchemaError
from tidelog.ids import CheckpointId
from tidelog.library.baton import Baton
from tidelog.library.declarations import State
from tidelog.library.handles import Access, KeyStates
from tidelog.library.scan import Part
from tidelog.library.states import (
    NO_KEY,
    POSITION_SCHEMAS,
    NamedState,
    declared_state,
    named_state,
    stored_positions,
)
from tidelog.runtime.channels.messages import SideBatch
from tidelog.runtime.operators.operator import Operator, OperatorContext
from tidelog.state.handles.map import MapState
from tidelog.state.key_groups import encode_key, key_group
from tidelog.state.schema.decode import POSITIONS

_FAR: Final = 1 << 63
_PORTION: Final = 1024
"""Records that a sink gets at a time."""
_KEYS: Final = 8192
"""Keys whose handles are kept for the next time."""


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
        baton: Baton,
        ending: Callable[[], Exception],
        *,
        thrifty: bool = False,
    ) -> None:
        self.baton = baton
        self.thrifty = thrifty
        """As `Caller.thrifty`."""
        self._ending = ending
        self.began: Future[None] = Future()
        """Done when the states are restored."""
        self.durable: dict[Any, Any] = {}
        """The position of each partition in the last durable checkpoint."""
        self._positions: dict[Any, Any] = {}
        """The newest positions ..."""
        self._moved: set[Any] = set()
        """... of which those of these partitions are not written to the state yet ..."""
        self._captured: dict[CheckpointId, dict[Any, Any]] = {}
        """... and those in checkpoints that are not durable yet."""
        self._emitted: dict[str, list[Any]] = {name: [] for name in sinks}
        """Records for each sink that are not on their way to it yet."""
        self._declared = declared
        self._operator: StatesOperator | None = None
        self._wake: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._keys: dict[bytes, KeyStates] = {}

    def operator(self) -> Operator:
        """A new operator; the newest one is that of the task."""
        self._operator = StatesOperator(self._declared)
        return self._operator

    def begin(self, wake: asyncio.Event) -> None:
        """Called in the event loop when the states are restored."""
        assert self._operator is not None
        self._wake, self._loop = wake, asyncio.get_running_loop()
        self.access = Access(self.baton, self._operator.backend, self._look, self._ending)
        self.durable = self._operator.positions()
        self._positions = dict(self.durable)
        self.baton.begin()
        self.began.set_result(None)

    @asynccontextmanager
    async def held(self, given_up: asyncio.Event) -> AsyncIterator[bool]:
        """As `Caller.held`: no step is open in the block, and none begins."""
        loop, baton, none_open = asyncio.get_running_loop(), self.baton, asyncio.Event()

        def ended() -> None:
            loop.call_soon_threadsafe(none_open.set)

        baton.hold_back(ended)
        given = asyncio.ensure_future(given_up.wait())
        try:
            # A thread in a step of another database may have begun one here in the meantime.
            while baton.any_step and not given.done():
                none_open.clear()
                waiting = asyncio.ensure_future(none_open.wait())
                await asyncio.wait([waiting, given], return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
            held = not baton.any_step
            if held:
                baton.pause(True)
            else:
                baton.let_go()
            yield held
        finally:
            given.cancel()
            baton.pause(False)
            baton.let_go()

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
        encode = msgspec.msgpack.encode
        self.access.backend.use_encoded_key(NO_KEY)
        for partition in self._moved:
            position = self._positions[partition]
            self._operator.position.updateValue((encode(partition),), (encode(position),))
        self._moved.clear()
        self._captured[checkpoint] = dict(self._positions)

    def completed(self, checkpoint: CheckpointId) -> None:
        """As `Caller.completed`."""
        for each in [each for each in self._captured if each <= checkpoint]:
            self.durable = self._captured.pop(each)

    def end(self) -> None:
        """As `Caller.end`."""
        self.baton.end()

    def rest(self) -> None:
        """As `Caller.rest`."""
        self.access.look_at_next()

    @property
    def moved(self) -> bool:
        """As `Caller.moved`."""
        return bool(self._moved) or any(self._emitted.values())

    @property
    def in_step(self) -> str:
        """The threads whose step is open."""
        return ", ".join(self.baton.open_steps)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """As `Caller.paused`."""
        self.baton.pause(True)
        try:
            yield
        finally:
            self.baton.pause(False)

    def key(self, key: Any) -> KeyStates:
        """The states of a key."""
        encoded = encode_key(key)
        found = self._keys.get(encoded)
        if found is None:
            assert self._operator is not None
            if len(self._keys) >= _KEYS:
                self._keys = {}  # all at once, which costs nothing per access
            states, prefix = self._operator.states, self._prefix_of(encoded)
            found = self._keys[encoded] = KeyStates(self.access, states, prefix, encoded)
        return found

    def part(self, name: str) -> Part:
        """A state of the program, to be scanned; raises ConfigError for one it has not."""
        assert self._operator is not None
        named = named_state(self._operator.states, name)
        return Part(self.access, self.access.backend.owned, named)

    def write(self, sink: str, record: Any) -> None:
        """Write a record to a sink: a change of the calling thread's step."""
        records, access = self._emitted.get(sink), self.access
        if records is None:
            raise ConfigError(
                f"sink {sink!r}",
                expected=f"one of {', '.join(self._emitted) or 'none'}",
                found="none of that name",
                action="name it in sinks= when the database is opened",
            )
        access.enter()
        try:
            access.changing()
            records.append(record)
        finally:
            access.baton.give()

    def advance(self, partition: Any, position: Any) -> None:
        """Note a position, and end the step of the calling thread."""
        # Most positions are offsets.
        if position.__class__ is not int or not -_FAR <= position < _FAR:
            _check_storable(f"position {position!r}", position)
        if partition not in self._positions:
            _check_storable(f"partition {partition!r}", partition)
        access = self.access
        access.enter()
        try:
            access.changing()
            self._positions[partition] = position
            self._moved.add(partition)
            self.baton.advanced()
        finally:
            self.baton.give()

    @property
    def in_own_step(self) -> bool:
        """Whether the calling thread has changed something since its last step ended."""
        return self.baton.in_step

    def end_step(self) -> None:
        """What the calling thread has changed may be part of a checkpoint."""
        self.baton.take()
        try:
            self.baton.end_step()
        finally:
            self.baton.give()

    def _look(self) -> None:
        assert self._loop is not None and self._wake is not None
        self._loop.call_soon_threadsafe(self._wake.set)

    def _prefix_of(self, encoded: bytes) -> bytes:
        return key_group(encoded, self.access.backend.key_groups).to_bytes(2, "big")


def _check_storable(what: str, value: Any) -> None:
    """Raises StateSchemaError for what cannot be written when a checkpoint comes."""
    try:
        msgspec.msgpack.encode(value)
    except (TypeError, OverflowError, UnicodeEncodeError, RecursionError) as cause:
        raise StateSchemaError(
            what,
            expected="a text, bytes, a number of 64 bits, or a list of these",
            found=str(cause),
            action="pass one; it is what `position` gives back after a restart",
        ) from cause
