"""Discovers the splits of a source for one of its subtasks, in the background.

Invariants: nobody waits for a discovery; each split is given once; a split that an earlier run has
begun and not read to its end is given also when the source does not list it any more, for the
source then says what is lost.
"""

import asyncio
import math
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple

from tidelog.effects import Effects
from tidelog.runtime.source import Source
from tidelog.runtime.tasks.splits import SourceSplits, SplitPositions, StoredSplit
from tidelog.runtime.user_code import in_user_code, user_code

SPLITS_IN_A_TURN: Final = 1000
"""Splits that are looked at before other tasks have their turn: a directory may have a million."""


class _EndedSplit(NamedTuple):
    """A split that an earlier run has read to its end."""

    name: str
    position: Any


class SplitDiscovery:
    """Discovers at the interval that the source asks for; `listener` is called when one is done."""

    def __init__(
        self,
        operator: str,
        splits: SourceSplits,
        positions: SplitPositions,
        effects: Effects,
        listener: Callable[[], None],
    ) -> None:
        self._operator = operator
        self._source: Source = splits.source
        self._splits = splits
        self._positions = positions
        self._effects = effects
        self._listener = listener
        self._pending: asyncio.Future[list[str]] | None = None
        self._next_at = -math.inf
        self._known: set[str] = set()
        """All splits that were discovered, also other subtasks': the owner is asked for once."""
        self.over: set[str] = set()
        """Splits that were read to their end in an earlier run, and have no more."""
        self.done = False
        """The first discovery has ended."""

    @property
    def count(self) -> int:
        """Splits that were discovered, of all subtasks."""
        return len(self._known)

    @property
    def due_at(self) -> float:
        """When the next discovery begins, on the monotonic clock; infinite while one runs."""
        return math.inf if self._pending is not None else self._next_at

    def cancel(self) -> None:
        if self._pending is not None:
            self._pending.cancel()

    def new_splits(self) -> list[str] | None:
        """Splits of all subtasks that a discovery has found; None: no discovery has ended.

        Begins a discovery when it is due. Raises what the source raises.
        """
        now = self._effects.clock.monotonic()
        if self._pending is None and now >= self._next_at:
            self._pending = asyncio.ensure_future(self._discover())
            self._pending.add_done_callback(lambda _: self._listener())
        if self._pending is None or not self._pending.done():
            return None
        splits = [split for split in self._pending.result() if split not in self._known]
        self._pending = None
        again = self._source.rediscover_s
        self._next_at = math.inf if again is None else now + again
        self._known.update(splits)
        self.done = True
        return splits

    async def _discover(self) -> list[str]:
        listed = await self._splits.discover(self._operator)
        if self.done:
            return listed
        started_splits = list(self._positions.stored_splits())
        ended: dict[str, _EndedSplit] = {}
        for number, split in enumerate(started_splits):
            if number % SPLITS_IN_A_TURN == SPLITS_IN_A_TURN - 1:
                await self._effects.clock.sleep(0)
            state = self._positions.find(split) or StoredSplit()
            with user_code(self._operator):
                self._source.check_position(split, state.position)
            if state.ended:
                ended[split] = _EndedSplit(split, state.position)
        self.over.update(ended)
        if candidates := [ended[split] for split in listed if split in ended]:
            look = in_user_code(self._operator, self._with_more)
            self.over.difference_update(await self._effects.offload.wait(look, candidates))
        return list(dict.fromkeys(chain(listed, started_splits)))

    def _with_more(self, candidates: Sequence[_EndedSplit]) -> list[str]:
        more: list[str] = []
        for split in candidates:
            if self._source.has_more(split.name, split.position):
                more.append(split.name)
        return more
