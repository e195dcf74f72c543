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

_SHARE: Final = 0.05
"""Share of the time that discoveries may take: a list of very many files takes long ..."""
_MOST_RESTS: Final = 10
"""... but they come no later than so many times the interval that the source asks for."""


class SourceSplits:
    """What the subtasks of one source share."""

    def __init__(self, source: Source, effects: Effects) -> None:
        self._source = source
        self._effects = effects
        self._split_names: list[str] | None = None
        self._find_at = 0.0
        self._lock = asyncio.Lock()
        self._first: frozenset[str] | None = None
        """What the first discovery of this run has found."""
        self.resumes = False
        """An earlier run has begun some of the splits of the subtasks that have joined, or of
        those in other processes."""
        self._readers = 0
        self._looking = 0
        self.alignment = SplitAlignment()

    def join(self, *, resumes: bool) -> None:
        """One more subtask reads splits; `resumes`: an earlier run has begun some of its."""
        self._readers += 1
        self._looking += 1
        self.resumes = self.resumes or resumes

    def looked(self) -> None:
        """A subtask that has joined has added the splits that were found first."""
        self._looking -= 1

    @property
    def least(self) -> float:
        """The least watermark of the splits of this process, those not found yet included."""
        return -math.inf if self._looking else self.alignment.here

    async def leave(self) -> None:
        """A subtask reads no more; after the last one the source is closed."""
        self._readers -= 1
        if self._readers == 0:
            await self._effects.offload.wait(self._source.close)

    def is_new(self, split: str) -> bool:
        """Whether a split has appeared after the source began, in this run or an earlier one."""
        return self.resumes or (self._first is not None and split not in self._first)

    async def find(self, operator: str) -> list[str]:
        """All splits known now; discovers again at the interval that the source asks for.

        Raises UserFunctionError, naming the operator, for what the source raises, and ConfigError
        for a split whose name is no text.
        """
        async with self._lock:
            now = self._effects.clock.monotonic()
            again = self._source.rediscover_s
            if self._split_names is None or (again is not None and now >= self._find_at):
                discover = in_user_code(operator, self._discovered)
                self._split_names = await self._effects.offload.wait(discover)
                if again is not None:
                    self._find_at = now + max(again, self._rest(now, again))
                if self._first is None:
                    self._first = frozenset(self._split_names)
            return self._split_names

    def _rest(self, started_at: float, again: float) -> float:
        """Seconds between discoveries so that they take no more than their share of the time; one
        that waits for more than storage takes none.
        """
        seconds = self._effects.clock.monotonic() - started_at
        return (
            min(seconds / _SHARE, _MOST_RESTS * again)
            if self._source.reads_without_waiting
            else 0.0
        )

    def _discovered(self) -> list[str]:
        names = self._source.discover()
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
        self._elsewhere = math.inf
        self._waiting: set[Callable[[], None]] = set()

    def moved(self, split: str, watermark: int | None) -> None:
        """A split has reached this watermark; None: it has not begun."""
        self._watermarks.put(split, watermark)
        self._wake()

    def gone(self, split: str) -> None:
        """Do not wait for a split: it ended, or has nothing to read now."""
        if split in self._watermarks:
            self._watermarks.drop(split)
            self._wake()

    @property
    def here(self) -> float:
        """The least watermark of the splits of this process; infinite without any."""
        if not self._watermarks:
            return math.inf
        mark = self._watermarks.mark
        return -math.inf if mark is None else mark

    def least(self) -> float:
        """The least watermark of all splits; infinite without any."""
        return min(self.here, self._elsewhere)

    def elsewhere(self, watermark: float) -> None:
        """The least watermark of the splits that other processes read."""
        self._elsewhere = watermark
        self._wake()

    def wait(self, wake: Callable[[], None]) -> None:
        """Call `wake` once, when some split has moved on or is gone."""
        self._waiting.add(wake)

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, set()
        for wake in waiting:
            wake()


class StoredSplit(NamedTuple):
    done: bool = False
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
        self._at_barriers: dict[CheckpointId, dict[str, Any]] = {}
        """Positions that have moved before the barriers of checkpoints that are not complete."""

    def owns(self, split: str) -> bool:
        return key_group(encode_key(split), self._backend.key_groups) in self._backend.owned

    def get(self, split: str) -> StoredSplit:
        row = self._rows.get(self._row(split))
        return StoredSplit(*row) if row is not None else StoredSplit()

    def put(self, split: str, split_state: StoredSplit) -> None:
        self._new_positions[split] = split_state.position
        row = [split_state.done, split_state.position]
        if split_state.latest is not None:
            row.append(split_state.latest)
        self._rows.put(self._row(split), row)

    def at_barrier(self, checkpoint: CheckpointId) -> None:
        """The positions put so far are those of the checkpoint."""
        if self._new_positions:
            self._at_barriers[checkpoint] = self._new_positions
            self._new_positions = {}

    def completed(self, checkpoint: CheckpointId) -> dict[str, Any]:
        """The positions in a completed checkpoint that have moved since the one before."""
        positions: dict[str, Any] = {}
        for earlier in sorted(self._at_barriers):
            if earlier <= checkpoint:
                positions.update(self._at_barriers.pop(earlier))
        return positions

    def started(self) -> Iterable[str]:
        """Splits with a stored position."""
        for group in range(self._backend.owned.first, self._backend.owned.last + 1):
            prefix = group.to_bytes(2, "big") + self._state
            for row, _ in self._rows.scan(prefix, prefix_end(prefix)):
                yield msgspec.msgpack.decode(row[len(prefix) :], type=str)

    def _row(self, split: str) -> bytes:
        key = encode_key(split)
        group = key_group(key, self._backend.key_groups).to_bytes(2, "big")
        return group + self._state + key
