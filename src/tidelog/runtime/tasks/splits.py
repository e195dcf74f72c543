"""The splits of a source: found once for all subtasks, aligned in event time, positions stored.

Invariants: a split belongs to the subtask that owns its key group, so splits follow their key
groups in a rescale; a split waits only for one that has records to read.
"""

import asyncio
import math
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import msgspec

from tidelog.changelog.change import prefix_end
from tidelog.effects import Effects
from tidelog.errors import require
from tidelog.ids import CheckpointId
from tidelog.runtime.source import Source
from tidelog.runtime.tasks.watermarks import LeastWatermark
from tidelog.runtime.user_code import in_user_code
from tidelog.state.backend import KeyedBackend
from tidelog.state.key_groups import encode_key, key_group
from tidelog.state.objects.values import ObjectEncoding

_TIME_SHARE: Final = 0.05
"""Share of the time that discoveries may take, as to list very many files takes long."""
_MAX_PAUSE: Final = 10
"""The longest pause that this share leads to, in intervals that the source asks for."""


class SourceSplits:
    """What the subtasks of one source share."""

    def __init__(self, source: Source, effects: Effects) -> None:
        self.source = source
        self._effects = effects
        self._split_names: list[str] | None = None
        self._next_discovery_s = 0.0
        self._lock = asyncio.Lock()
        self._first_splits: frozenset[str] | None = None
        """The splits of the first discovery of this run."""
        self.resumes = False
        """An earlier run has begun splits of subtasks that joined, or of other processes."""
        self._readers = 0
        self._undiscovered_subtasks = 0
        """Subtasks that have joined, and have not added the splits of the first discovery."""
        self.alignment = SplitAlignment()

    def join(self, *, resumes: bool) -> None:
        """One more subtask reads splits; `resumes`: an earlier run has begun some of its."""
        self._readers += 1
        self._undiscovered_subtasks += 1
        self.resumes = self.resumes or resumes

    def on_first_discovery(self) -> None:
        """A subtask that has joined has added the splits of the first discovery."""
        self._undiscovered_subtasks -= 1

    @property
    def watermark(self) -> float:
        """The least watermark of the splits of this process, also of those not discovered yet."""
        return -math.inf if self._undiscovered_subtasks else self.alignment.local_watermark

    async def leave(self) -> None:
        """A subtask reads no more; after the last one the source is closed."""
        self._readers -= 1
        if self._readers == 0:
            await self._effects.offload.wait(self.source.close)

    def is_new(self, split: str) -> bool:
        """Whether a split has appeared after the source began, in this run or an earlier one."""
        return self.resumes or (self._first_splits is not None and split not in self._first_splits)

    async def discover(self, operator: str) -> list[str]:
        """All splits known now; discovers again at the interval that the source asks for.

        Raises UserFunctionError, naming the operator, for what the source raises, and ConfigError
        for a split whose name is no text.
        """
        async with self._lock:
            now = self._effects.clock.monotonic()
            again = self.source.rediscover_s
            if self._split_names is None or (again is not None and now >= self._next_discovery_s):
                discover = in_user_code(operator, self._names)
                self._split_names = await self._effects.offload.wait(discover)
                if again is not None:
                    self._next_discovery_s = now + max(again, self._pause_s(now, again))
                if self._first_splits is None:
                    self._first_splits = frozenset(self._split_names)
            return self._split_names

    def _pause_s(self, started_at: float, again: float) -> float:
        """Seconds between discoveries so that they take no more than their share of the time; one
        that waits for more than storage takes none.
        """
        if not self.source.reads_without_waiting:
            return 0.0
        seconds = self._effects.clock.monotonic() - started_at
        return min(seconds / _TIME_SHARE, _MAX_PAUSE * again)

    def _names(self) -> list[str]:
        names = self.source.discover()
        # One name in place of a list: each of its letters would be a split with all the records.
        require("the splits of the source", repr(names), not isinstance(names, str), "a list")
        splits = list(names)
        for split in splits:
            # A restart could not read another type of name from the checkpoint.
            require("a split of the source", repr(split), isinstance(split, str), "a name, a str")
        return splits


class SplitAlignment:
    """How far event time is in the splits that have records to read (Flink: FLIP-182, FLIP-217)."""

    def __init__(self) -> None:
        self._watermarks = LeastWatermark()
        self._remote_watermark = math.inf
        self._listeners: set[Callable[[], None]] = set()

    def put(self, split: str, watermark: int | None) -> None:
        """A split has reached this watermark; None: it has not begun."""
        self._watermarks.put(split, watermark)
        self._wake()

    def drop(self, split: str) -> None:
        """Do not wait for a split: it ended, or has nothing to read now."""
        if split in self._watermarks:
            self._watermarks.drop(split)
            self._wake()

    def drop_all(self, splits: Iterable[str]) -> None:
        """Wait for none of these splits."""
        for split in splits:
            self.drop(split)

    @property
    def local_watermark(self) -> float:
        """The least watermark of the splits of this process; infinite without any."""
        if not self._watermarks:
            return math.inf
        mark = self._watermarks.mark
        return -math.inf if mark is None else mark

    def watermark(self) -> float:
        """The least watermark of all splits; infinite without any."""
        return min(self.local_watermark, self._remote_watermark)

    def set_remote_watermark(self, watermark: float) -> None:
        """The least watermark of the splits that other processes read."""
        self._remote_watermark = watermark
        self._wake()

    def wake_on_change(self, wake: Callable[[], None]) -> None:
        """Call `wake` once, when some split has moved on or is gone."""
        self._listeners.add(wake)

    def _wake(self) -> None:
        listeners, self._listeners = self._listeners, set()
        for wake in listeners:
            wake()


class StoredSplit(NamedTuple):
    ended: bool = False
    position: Any = None
    latest: int | None = None
    """The greatest event time read there, if the source's own tasks make watermarks."""


class SplitPositions:
    """Positions of the splits one subtask owns, as keyed state."""

    def __init__(self, backend: KeyedBackend) -> None:
        self._backend = backend
        info = backend.registry.register("$splits", "splits", ("msgpack",))
        self._state = info.id.to_bytes(2, "big")
        positions = ObjectEncoding(f"positions of source {backend.registry.operator!r}")
        self._rows = backend.rows(positions.encode, positions.decode, scanned=True, hidden=True)
        self._new_positions: dict[str, Any] = {}
        """Positions that no barrier has passed yet."""
        self._barrier_positions: dict[CheckpointId, dict[str, Any]] = {}
        """Positions that have moved before the barriers of checkpoints that are not complete."""

    def owns(self, split: str) -> bool:
        return key_group(encode_key(split), self._backend.key_groups) in self._backend.owned

    def find(self, split: str) -> StoredSplit | None:
        """What is stored of a split; None: nothing, for it has not begun."""
        row = self._rows.get(self._row(split))
        return StoredSplit(*row) if row is not None else None

    def put(self, split: str, split_state: StoredSplit) -> None:
        self._new_positions[split] = split_state.position
        row = [split_state.ended, split_state.position]
        if split_state.latest is not None:
            row.append(split_state.latest)
        self._rows.put(self._row(split), row)

    def on_barrier(self, checkpoint: CheckpointId) -> None:
        """The positions put so far are those of the checkpoint."""
        if self._new_positions:
            self._barrier_positions[checkpoint] = self._new_positions
            self._new_positions = {}

    def on_complete(self, checkpoint: CheckpointId) -> dict[str, Any]:
        """The positions in a completed checkpoint that have moved since the one before."""
        positions: dict[str, Any] = {}
        for earlier in sorted(self._barrier_positions):
            if earlier <= checkpoint:
                positions.update(self._barrier_positions.pop(earlier))
        return positions

    def stored_splits(self) -> Iterable[str]:
        """Splits with a stored position."""
        for group in range(self._backend.owned.first, self._backend.owned.last + 1):
            prefix = group.to_bytes(2, "big") + self._state
            for row, _ in self._rows.scan(prefix, prefix_end(prefix)):
                yield msgspec.msgpack.decode(row[len(prefix) :], type=str)

    def _row(self, split: str) -> bytes:
        key = encode_key(split)
        group = key_group(key, self._backend.key_groups).to_bytes(2, "big")
        return group + self._state + key
