"""A view: the states that a checkpoint holds, to be read by anybody while others change them.

Invariants: nothing is written to the store and nobody is fenced; once it is open a view needs the
store no more, so it stays what it is whatever becomes of the checkpoint.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from tidelog.catalog.locate import CheckpointName, find, parse_place
from tidelog.checkpoint.manifest import Checkpoint, OperatorState, SubtaskState
from tidelog.effects import Effects
from tidelog.errors import ConfigError, ObjectNotFoundError, RestoreError
from tidelog.ids import KeyGroup
from tidelog.library.declarations import State
from tidelog.library.event_loop import EventLoop
from tidelog.library.handles import KeyStates, states_of_keys
from tidelog.library.scan import Part, scanned
from tidelog.library.state_lock import LoopLock, ReadersLock
from tidelog.library.states import (
    POSITION_SCHEMAS,
    NamedState,
    declared_state,
    is_readable,
    named_state,
    stored_positions,
    stored_states,
)
from tidelog.runtime.config import JobConfig
from tidelog.runtime.subtasks.work_dir import open_work_dir, remove_work_dir
from tidelog.state.backend import KeyedBackend
from tidelog.state.handles.map import MapState
from tidelog.state.key_groups import KeyGroupRange, key_group
from tidelog.state.keys import checked_key
from tidelog.state.log import NoLog
from tidelog.state.registry import StateRegistry
from tidelog.state.restore.progress import RestoreProgress
from tidelog.state.restore.restorer import RestoredSubtask, Restorer
from tidelog.state.schema.decode import POSITIONS
from tidelog.storage.open import Url, open_store
from tidelog.storage.port import ObjectStore
from tidelog.table.kinds import reading_factory

T = TypeVar("T")

_TRIES: Final = 20
"""The newest checkpoint may be dropped while it is read: so many are tried."""


@dataclass(frozen=True, slots=True)
class _Subtask:
    """The states of one subtask of the operator."""

    lock: ReadersLock
    backend: KeyedBackend
    states: Mapping[str, NamedState]
    of_key: type[KeyStates]


class View:
    """The states in one checkpoint; operations may come from any thread.

    What they find never changes, but for values whose time to live ends.
    """

    def __init__(
        self,
        url: str,
        checkpoint: Checkpoint,
        operator: OperatorState,
        subtasks: Sequence[_Subtask],
        directory: Path,
    ) -> None:
        self.at = checkpoint
        """The checkpoint: its `slot`, `created_ms` and so on."""
        self._url = url
        self._operator = operator
        self._subtasks = subtasks
        self._directory = directory
        self.position = self._position()
        """The position of each partition; None when the checkpoint has none."""

    @property
    def states(self) -> list[str]:
        """The names of the states that there are."""
        return list(self._subtasks[0].states)

    def key(self, key: Any) -> KeyStates:
        """The states of a key, as `Database.key` gives them; only their reads work.

        Values of several columns, which jobs have, are tuples. Of a job's `transform_with_state`
        the keys are what `key_by` made.
        """
        encoded = checked_key("key", key)
        group = key_group(encoded, self._operator.key_groups)
        subtask = next(each for each in self._subtasks if group in each.backend.owned)
        return subtask.of_key(group.to_bytes(2, "big"), encoded)

    def scan(
        self, name: str, *, prefix: Any = None, after: Any = None
    ) -> Iterator[tuple[Any, ...]]:
        """The keys of a state with their values, as `Database.scan` gives them."""
        parts = [
            Part(each.lock, each.backend, named_state(each.states, name)) for each in self._subtasks
        ]
        return scanned(parts, prefix, after)

    def close(self) -> None:
        """Release everything, and remove the local copy."""
        for each in self._subtasks:
            each.lock.take()
            try:
                if not each.lock.closed:
                    each.lock.end()
                    each.backend.table.close()
            finally:
                each.lock.give()
        if self._directory.exists():
            remove_work_dir(self._directory)

    def __enter__(self) -> "View":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _position(self) -> dict[Any, Any] | None:
        if POSITIONS not in {info.name for info in self._operator.states}:
            return None
        found: dict[Any, Any] = {}
        for each in self._subtasks:
            position = MapState(each.backend, POSITIONS, *POSITION_SCHEMAS)
            found |= stored_positions(each.backend, position)
        return found or None


def open_view(
    url: Url,
    at: str | int,
    state: Mapping[str, State] | None,
    operator: str | None,
    config: JobConfig,
    options: Mapping[str, Any] | None,
    log_url: Url | None,
) -> View:
    """A view of the checkpoint at a place; arguments and errors are those of `tidelog.open`."""
    place, event_loop = parse_place(str(at)), EventLoop()
    try:
        store = open_store(
            url,
            event_loop.effects,
            policy=config.retry,
            options=options,
            log_url=log_url,
            encryption_key=config.encryption_key,
        )
        opening = _Opening(store, event_loop.effects, config, operator, state)
        return event_loop.ask(opening.run(place))
    finally:
        event_loop.close()


@dataclass(frozen=True, slots=True)
class _Opening:
    """Brings a checkpoint to this machine."""

    store: ObjectStore
    effects: Effects
    config: JobConfig
    operator: str | None
    declared: Mapping[str, State] | None

    async def run(self, place: CheckpointName) -> View:
        """Open it, and close the store."""
        try:
            directory = open_work_dir(self.config.work_dir, self.store.url)
            try:
                return await self._newest_left(place, partial(self._view, directory))
            except BaseException:
                remove_work_dir(directory)
                raise
        finally:
            await self.store.close()

    async def _newest_left(
        self, place: CheckpointName, view: Callable[[Checkpoint], Awaitable[T]]
    ) -> T:
        """The view of a checkpoint; another one if the newest was dropped while it was read."""
        for _ in range(_TRIES - 1):
            with suppress(RestoreError, ObjectNotFoundError):
                return await view(await find(self.store, place))
            if place is not None:
                break
        return await view(await find(self.store, place))

    async def _view(self, directory: Path, checkpoint: Checkpoint) -> View:
        operator = self._chosen(checkpoint)
        restored = await self._restored(operator, directory)
        try:
            subtasks = [
                self._subtask(operator, state, each)
                for state, each in zip(operator.subtasks, restored, strict=True)
            ]
            return View(self.store.url, checkpoint, operator, subtasks, directory)
        except BaseException:
            _close(restored)
            raise

    def _chosen(self, checkpoint: Checkpoint) -> OperatorState:
        """The operator that was asked for, or the only one with states."""
        readable = {
            each.id: each for each in checkpoint.operators if any(map(is_readable, each.states))
        }
        wanted = [self.operator] if self.operator else list(readable)
        if len(wanted) != 1 or wanted[0] not in readable:
            raise ConfigError(
                f"operator of slot {checkpoint.slot} of {self.store.url}",
                expected=f"one of {', '.join(readable) or 'none: no operator has state to read'}",
                found=", ".join(wanted) or "none",
                action="name one with operator=",
            )
        return readable[wanted[0]]

    async def _restored(self, operator: OperatorState, directory: Path) -> list[RestoredSubtask]:
        states, effects = operator.subtasks, self.effects
        bounds = self.config.restore.shared_by(len(states), self.config.memory)
        progress = RestoreProgress.of(effects.clock, states)

        def restorer(state: SubtaskState) -> Restorer:
            factory = reading_factory(state.table, operator.id)
            return Restorer(self.store, effects, factory, progress, bounds)

        def restore(restorer: Restorer, state: SubtaskState) -> Awaitable[RestoredSubtask]:
            what = f"{operator.id}-{state.index}"
            return restorer.restore(state, directory / what, what)

        restorers = [restorer(state) for state in states]
        try:
            restored = await asyncio.gather(
                *map(restore, restorers, states), return_exceptions=True
            )
        finally:
            for each in restorers:
                await each.close()
        whole = [each for each in restored if isinstance(each, RestoredSubtask)]
        for failure in restored:
            if isinstance(failure, BaseException):
                _close(whole)
                raise failure
        return whole

    def _subtask(
        self, operator: OperatorState, state: SubtaskState, restored: RestoredSubtask
    ) -> _Subtask:
        backend = KeyedBackend(
            registry=StateRegistry(operator.id, operator.states),
            key_groups=operator.key_groups,
            owned=KeyGroupRange(KeyGroup(state.first_key_group), KeyGroup(state.last_key_group)),
            table=restored.table,
            log=NoLog(),
            now_ms=self.effects.clock.now_ms,
            monotonic=self.effects.clock.monotonic,
            reads_only=True,
        )
        url = self.store.url

        def ending() -> Exception:
            return ConfigError(
                f"view of {url}", expected="one that is open", action="open it again"
            )

        if self.declared is None:
            states = stored_states(backend, operator.states)
        else:
            states = {
                name: declared_state(backend, name, each) for name, each in self.declared.items()
            }
        lock = ReadersLock(LoopLock(), f"view of {url}")
        lock.begin(lambda: None, ending, lambda _: None)
        return _Subtask(lock, backend, states, states_of_keys(lock, backend, states))


def _close(restored: Sequence[RestoredSubtask]) -> None:
    for each in restored:
        each.table.close()
