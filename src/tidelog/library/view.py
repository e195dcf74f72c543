"""A view: the states that a checkpoint holds, to be read by anybody while others change them.

Invariants: nothing is written to the store and nobody is fenced; once it is open a view needs the
store no more, so it stays what it is whatever becomes of the checkpoint.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tidelog.catalog.locate import CheckpointName, find
from tidelog.checkpoint.manifest import Checkpoint, OperatorState, SubtaskState
from tidelog.effects import Effects
from tidelog.errors import ConfigError, ObjectNotFoundError, RestoreError
from tidelog.ids import KeyGroup, SubtaskId
from tidelog.library.event_loop import LoopLock, forked_error
from tidelog.library.handles import KeyStates, states_of_keys
from tidelog.library.scan import BEGINNING, Scan, ScanPart
from tidelog.library.states import State, declared_states
from tidelog.library.steps import Steps
from tidelog.runtime.config import JobConfig
from tidelog.runtime.subtasks.resources import open_work_dir, remove_work_dir
from tidelog.state.backend import KeyedBackend
from tidelog.state.key_groups import KeyGroupRange, checked_key, key_group
from tidelog.state.positions import Positions, decoded_positions
from tidelog.state.recovery.base_table import reading_factory
from tidelog.state.recovery.progress import RestoreProgress
from tidelog.state.recovery.restorer import restore_subtasks
from tidelog.state.registry import POSITIONS, StateRegistry
from tidelog.state.stored_states import NamedState, is_readable, named_state, stored_states
from tidelog.state.unlogged import backend_without_log
from tidelog.storage.port import ObjectStore
from tidelog.table.port import Table

_TRIES: Final = 20
"""The newest checkpoint may be dropped while it is read: so many are tried."""


class _ReadSteps(Steps):
    """The operations on a state that is only read: no step changes it, no loop works on it."""

    def __init__(self, what: str) -> None:
        super().__init__(LoopLock(), float, self._closed_error, lambda _: None)
        self._what = what

    def _may_change(self) -> bool:
        raise ConfigError(
            self._what,
            expected="reads: it shows what a checkpoint holds",
            found="a change",
            action="open the store without checkpoint= to change states; clone it to change a copy",
        )

    def _closed_error(self) -> Exception:
        if self._loop_lock.forked:
            return forked_error(self._what)
        return ConfigError(
            self._what, expected="one that is open", found="a closed one", action="open it again"
        )


@dataclass(frozen=True, slots=True)
class _Subtask:
    """The states of one subtask of the operator."""

    steps: _ReadSteps
    backend: KeyedBackend
    states: Mapping[str, NamedState]
    of_key: type[KeyStates]


class View:
    """The states in one checkpoint; operations may come from any thread.

    What they find never changes, but for values whose time to live ends.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        operator: OperatorState,
        subtasks: Sequence[_Subtask],
        directory: Path,
    ) -> None:
        self.checkpoint = checkpoint
        """With its `number`, `created_ms` and so on."""
        self._operator = operator
        self._subtasks = subtasks
        self._directory = directory
        self._positions = self._stored_positions()

    @property
    def position(self) -> dict[Any, Any] | None:
        """The position of each partition; None when the checkpoint has none.

        Raises StateSchemaError for one of a class that this program has not imported.
        """
        return decoded_positions(self._positions) or None

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
        subtask = next(subtask for subtask in self._subtasks if group in subtask.backend.owned)
        return subtask.of_key(group.to_bytes(2, "big"), encoded)

    def scan(
        self, name: str, *, prefix: Any = None, after: Any = BEGINNING
    ) -> Iterator[tuple[Any, ...]]:
        """The keys of a state with their values, as `Database.scan` gives them."""
        parts = [
            ScanPart(subtask.steps, subtask.backend, named_state(subtask.states, name))
            for subtask in self._subtasks
        ]
        return Scan(parts, prefix, after).rows()

    def close(self) -> None:
        """Release everything, and remove the local copy."""
        if any(subtask.steps.forked for subtask in self._subtasks):
            return
        for subtask in self._subtasks:
            with subtask.steps.lock:
                if not subtask.steps.closed:
                    subtask.steps.end()
                    subtask.backend.table.close()
        if self._directory.exists():
            remove_work_dir(self._directory)

    def __enter__(self) -> "View":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _stored_positions(self) -> dict[Any, bytes]:
        if POSITIONS not in {info.name for info in self._operator.states}:
            return {}
        positions: dict[Any, bytes] = {}
        for subtask in self._subtasks:
            positions |= Positions(subtask.backend).stored()
        return positions


@dataclass(frozen=True, slots=True)
class ViewOpening:
    """Brings a checkpoint to this machine."""

    store: ObjectStore
    effects: Effects
    config: JobConfig
    operator: str | None
    declared: Mapping[str, State] | None

    async def run(self, name: CheckpointName) -> View:
        """Open the checkpoint of this name, and close the store; raises as `tidelog.open`.

        Where the newest was dropped while it was read, the next one is tried.
        """
        tries = _TRIES if name is None else 1
        failed_checkpoint: Checkpoint | None = None
        try:
            while True:
                tries, checkpoint = tries - 1, None
                try:
                    checkpoint = await find(self.store, name)
                    return await self._open(checkpoint)
                except (RestoreError, ObjectNotFoundError):
                    is_same = checkpoint is not None and checkpoint == failed_checkpoint
                    if not tries or is_same:  # it was not dropped: it cannot be read
                        raise
                    failed_checkpoint = checkpoint
        finally:
            await self.store.close()

    async def _open(self, checkpoint: Checkpoint) -> View:
        directory = open_work_dir(self.config.work_dir, self.store.url)
        try:
            return await self._view(directory, checkpoint)
        except BaseException:
            remove_work_dir(directory)
            raise

    async def _view(self, directory: Path, checkpoint: Checkpoint) -> View:
        operator, effects = self._choose_operator(checkpoint), self.effects
        states = {SubtaskId(operator.id, state.index): state for state in operator.subtasks}
        restored = await restore_subtasks(
            states,
            store=self.store,
            effects=effects,
            config=self.config.restore,
            memory=self.config.memory,
            progress=RestoreProgress.of(effects.clock, operator.subtasks),
            directory=directory,
            factory=lambda task: reading_factory(states[task].table, operator.id),
            descriptors={},
        )
        tables = [subtask.table for subtask in restored.values()]
        try:
            subtasks = [
                self._subtask(operator, state, table)
                for state, table in zip(operator.subtasks, tables, strict=True)
            ]
            return View(checkpoint, operator, subtasks, directory)
        except BaseException:
            for table in tables:
                table.close()
            raise

    def _choose_operator(self, checkpoint: Checkpoint) -> OperatorState:
        """The operator that was asked for, or the only one with states or positions."""
        readable: dict[str, OperatorState] = {}
        for operator in checkpoint.operators:
            if any(is_readable(info) or info.name == POSITIONS for info in operator.states):
                readable[operator.id] = operator
        ids = [self.operator] if self.operator else list(readable)
        if len(ids) != 1 or ids[0] not in readable:
            raise ConfigError(
                f"operator of checkpoint {checkpoint.slot} of {self.store.url}",
                expected=f"one of {', '.join(readable) or 'none: no operator has state to read'}",
                found=", ".join(ids) or "none",
                action="name one with operator=",
            )
        return readable[ids[0]]

    def _subtask(self, operator: OperatorState, state: SubtaskState, table: Table) -> _Subtask:
        backend = backend_without_log(
            StateRegistry(operator.id, operator.states),
            operator.key_groups,
            KeyGroupRange(KeyGroup(state.first_key_group), KeyGroup(state.last_key_group)),
            table,
            self.effects.clock,
            reads_only=True,
        )
        if self.declared is None:
            states = stored_states(backend, operator.states)
        else:
            states = declared_states(backend, self.declared)
        steps = _ReadSteps(f"view of {self.store.url}")
        return _Subtask(steps, backend, states, states_of_keys(steps, backend, states))
