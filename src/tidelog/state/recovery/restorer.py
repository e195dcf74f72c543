"""Restore: a subtask's table from materializations plus the log after them.

Invariants: every byte is checked (CRC of each file, block and document) before it is used; what
does not fit raises, and the store is left as it was. Table and log are fetched side by side.
"""

import asyncio
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidelog.changelog.block import BlockInfo, SealedBlock
from tidelog.changelog.reader import SegmentReader
from tidelog.changelog.segment import LogRange
from tidelog.checkpoint.descriptor import Descriptor, TableObject
from tidelog.checkpoint.manifest import InheritedState, SubtaskState
from tidelog.concurrency import together
from tidelog.effects import Effects
from tidelog.ids import SeqNo, SubtaskId
from tidelog.state.config import RestoreConfig
from tidelog.state.recovery.base_table import BaseTable, TableFiles, open_base_table
from tidelog.state.recovery.log_replay import LogReplay, concerns
from tidelog.state.recovery.progress import RestoreProgress
from tidelog.state.recovery.shared_log import LoggedBlock, SharedLog
from tidelog.storage.port import ObjectStore
from tidelog.table.port import Table, TableFactory

if TYPE_CHECKING:
    from tidelog.state.recovery.hydration import TableHydration
    from tidelog.state.recovery.serving import Serving

_LOG_REQUESTS: Final = 4
"""Requests for log at a time for each one for a table file: segments are small, so what counts is
the latency, and the log must be there early to be merged while the table's files arrive."""


@dataclass(frozen=True, slots=True)
class RestoredSubtask:
    """A subtask's state, ready to run on."""

    table: Table
    seqno: SeqNo
    ranges: tuple[LogRange, ...]
    """The subtask's log after the materialization, trimmed to what the checkpoint covers."""
    inline: tuple[SealedBlock, ...]
    """Blocks of it that lived in the manifest and must be logged again."""
    files_by_name: Mapping[str, TableObject]
    """Stored files of the table, by local name."""
    descriptors: Mapping[str, Descriptor]
    """The materializations that were read, by object."""
    hydration: "TableHydration | None" = None
    """What of the table is missing; None: it is whole."""


async def restore_subtasks(
    states: Mapping[SubtaskId, SubtaskState],
    *,
    store: ObjectStore,
    effects: Effects,
    config: RestoreConfig,
    memory: int,
    progress: RestoreProgress,
    directory: Path,
    factory: Callable[[SubtaskId], TableFactory],
    descriptors: Mapping[str, Descriptor],
    serving: "Callable[[SubtaskId], Serving | None]" = lambda _: None,
) -> dict[SubtaskId, RestoredSubtask]:
    """Restore these subtasks side by side within `memory`; when one fails none stays open.

    `descriptors` are those that the caller has read already, by object name; others are fetched.
    `serving` opens the tables of an operator before they are whole; None: they are whole first.
    """
    # What is read again is held by the shared log: a cache of the reader would only take memory.
    log = _shared_log(store, effects, progress, config.shared_by(1, memory))
    for state in states.values():
        _expect(log, state)
    bounds = config.shared_by(len(states), memory)
    restorers: dict[Path, Restorer] = {}
    restoring: dict[SubtaskId, asyncio.Task[RestoredSubtask]] = {}
    for task, state in states.items():
        staging = directory / f"{task.operator}-{state.table}-staging"
        if staging not in restorers:
            restorers[staging] = Restorer(
                store,
                effects,
                factory(task),
                progress,
                bounds,
                staging,
                log,
                descriptors,
                serving(task),
            )
        restoring[task] = asyncio.ensure_future(
            restorers[staging].restore(state, directory / str(task), str(task))
        )
    try:
        restored = await asyncio.gather(*restoring.values())
    except BaseException:
        for restore in restoring.values():
            restore.cancel()
        for outcome in await asyncio.gather(*restoring.values(), return_exceptions=True):
            if not isinstance(outcome, BaseException):
                outcome.table.close()
        raise
    finally:
        await together([log.close(), *map(Restorer.close, restorers.values())])
    for staging in restorers:
        await effects.offload.run(shutil.rmtree, staging, True)
    return dict(zip(restoring, restored, strict=True))


@dataclass(slots=True)
class Restorer:
    """Restores subtasks of one operator in one checkpoint."""

    store: ObjectStore
    effects: Effects
    factory: TableFactory
    progress: RestoreProgress
    config: RestoreConfig = field(default_factory=RestoreConfig)
    staging: Path | None = None
    """Where table files lie that several subtasks need; None: each fetches its own."""
    log: SharedLog | None = None
    """Where the log is read that several subtasks need; None: each reads alone."""
    descriptors: Mapping[str, Descriptor] = field(default_factory=dict)
    """Descriptors that the caller has read already, by object name; others are fetched."""
    serving: "Serving | None" = None
    """Opens tables before their files are here; None: they are loaded whole first."""
    _files: TableFiles = field(init=False)

    def __post_init__(self) -> None:
        permits = asyncio.Semaphore(self.config.concurrency)
        self._files = TableFiles(
            self.store,
            self.effects,
            self.progress,
            permits,
            self.staging,
            self.descriptors,
            self.serving,
        )

    async def close(self) -> None:
        """Cancel the fetches into the staging directory that are under way."""
        await self._files.close()

    async def restore(self, state: SubtaskState, directory: Path, what: str) -> RestoredSubtask:
        """Build the subtask's table under `directory`, or next to it.

        Raises RestoreError, CorruptObjectError, FormatVersionError and what the store raises.
        """
        log = self.log
        if log is None:
            log = _shared_log(self.store, self.effects, self.progress, self.config)
            _expect(log, state)
        name = f"inline log of {what}"
        layers = [_Layer(layer, log.inline(layer.inline, name)) for layer in state.layers]
        # The log is fetched and merged while the table's files arrive.
        opening = asyncio.ensure_future(
            open_base_table(state, self._files, self.factory, directory, what)
        )
        merged = directory.with_name(f"{directory.name}-log")
        replaying = asyncio.ensure_future(self._replay(log, layers, opening, merged, what))
        try:
            base, ranges = await asyncio.gather(opening, replaying)
        except BaseException:
            await _give_up(opening, replaying)
            raise
        finally:
            if self.log is None:
                await log.close()
            await self.effects.offload.run(shutil.rmtree, merged, True)
        inline = tuple(map(_sealed, layers[-1].inline, state.inline))
        return RestoredSubtask(
            base.table,
            state.seqno,
            ranges,
            inline,
            base.files_by_name,
            base.descriptors,
            base.hydration,
        )

    async def _replay(
        self,
        log: SharedLog,
        layers: Sequence["_Layer"],
        opening: "asyncio.Future[BaseTable]",
        directory: Path,
        what: str,
    ) -> tuple[LogRange, ...]:
        """Replay the logs of all layers; returns the ranges of the last, the subtask's own."""
        ranges: list[tuple[LogRange, ...]] = []
        turn = asyncio.Lock()
        for wave in _waves(layers):
            replays = []
            for number, layer in enumerate(wave, start=len(ranges)):
                replay = LogReplay(
                    log,
                    self.effects.offload,
                    self.progress,
                    self.factory,
                    layer.state,
                    opening,
                    what,
                    directory / str(number),
                    # As much again is left for what is decoded.
                    read_ahead_bytes=self.config.read_ahead_bytes // (2 * len(wave)),
                    merge_bytes=self.config.replay_bytes // len(wave),
                    key_groups=None if layer is layers[-1] else _key_groups(layer.state),
                    turn=turn,
                )
                replays.append(replay.run(layer.inline))
            ranges += await together(replays)
        return ranges[-1]


def _shared_log(
    store: ObjectStore, effects: Effects, progress: RestoreProgress, config: RestoreConfig
) -> SharedLog:
    reader = SegmentReader(store, _LOG_REQUESTS * config.concurrency)
    return SharedLog(reader, effects.offload, progress, config.read_ahead_bytes)


def _expect(log: SharedLog, state: SubtaskState) -> None:
    """Announce the ranges that a subtask is going to read."""
    layers = state.layers
    for layer in layers:
        log.expect_inline(layer.inline)
        groups = None if layer is layers[-1] else _key_groups(layer)
        log.expect(filter(partial(concerns, key_groups=groups), layer.log))


def _key_groups(layer: InheritedState) -> range:
    return range(layer.first_key_group, layer.last_key_group + 1)


class _Layer(NamedTuple):
    state: InheritedState
    inline: Sequence[LoggedBlock]
    """The blocks of it that lie in the manifest, opened."""


def _waves(layers: Sequence[_Layer]) -> list[list[_Layer]]:
    """Layers in their order, those together that share no key group with one of the same wave.

    What overlaps an earlier layer waits for it: its rows win.
    """
    waves: list[list[_Layer]] = []
    for layer in layers:
        if not waves or any(_overlap(layer.state, other.state) for other in waves[-1]):
            waves.append([])
        waves[-1].append(layer)
    return waves


def _overlap(one: InheritedState, other: InheritedState) -> bool:
    groups, other_groups = _key_groups(one), _key_groups(other)
    return groups.start < other_groups.stop and other_groups.start < groups.stop


async def _give_up(opening: "asyncio.Task[BaseTable]", replaying: "asyncio.Task[Any]") -> None:
    """End both halves of a failed restore; a table that was opened is closed."""
    # The opening ends by itself: cancelled, its thread would go on writing files.
    replaying.cancel()
    await asyncio.gather(opening, replaying, return_exceptions=True)
    if not opening.cancelled() and opening.exception() is None:
        opening.result().table.close()


def _sealed(logged: LoggedBlock, data: bytes) -> SealedBlock:
    info = {name: getattr(logged.block, name) for name in BlockInfo.__struct_fields__}
    return SealedBlock(**info, data=data)
