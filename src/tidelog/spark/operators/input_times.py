"""How far event time is at the inputs of a keyed operator, as its key groups know it. Pure.

Watermarks travel as rows: what a task has read of its splits goes to all key groups of the operator
in the same batch. Each of them keeps what it knows of every split, so all have the same watermark.

Invariants: the watermark of an input is the least one of its splits that have neither ended nor are
idle, those not begun included, and never goes back; it follows from the rows of the batches and
their times alone, so a batch that is repeated has the same one.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, Self

import msgspec

from tidelog.runtime.tasks.watermarks import combined


class TimeInput(msgspec.Struct, frozen=True, eq=False):
    """An input of an operator that has watermarks."""

    name: str
    """Of the source or operator that it comes from, and after a slash of the one that makes them,
    if that is another one."""
    max_delay_ms: int = 0
    idle_after_ms: int | None = None
    splits: Mapping[str, int | None] = {}
    """The splits event time waits for from the start, and their greatest event time, if known."""


class Mark(msgspec.Struct, frozen=True, array_like=True):
    """What a task says of an input in a batch."""

    input: str
    watermarks: dict[str, int]
    """By split, of those with records in this task."""
    ended: tuple[str, ...] = ()
    """Splits that end with this batch."""
    is_idle: bool = False
    """What comes before the input is idle."""

    def encoded(self) -> bytes:
        data: bytes = _encode(self)
        return data

    @classmethod
    def decoded(cls, data: bytes) -> Self:
        mark: Self = _decode_mark(data)
        return mark


class _Split(msgspec.Struct, array_like=True):
    watermark: int | None
    active_ms: int
    """When its last batch with records was; 0 where nothing asks."""


class _Input(msgspec.Struct, array_like=True):
    reached: int | None
    """The greatest watermark that the input has had."""
    active_ms: int
    is_idle: bool
    delay_ms: int
    """How much the watermark of a split is less than the greatest event time there."""
    splits: dict[str, _Split]

    def active_times(self) -> list[int]:
        """When each split, or an input without any, had its last batch with records."""
        return [split.active_ms for split in self.splits.values()] or [self.active_ms]


_encode: Final[Any] = msgspec.msgpack.Encoder(order="deterministic").encode
_decode_mark: Final[Any] = msgspec.msgpack.Decoder(Mark).decode
_decode: Final = msgspec.msgpack.Decoder(dict[str, _Input]).decode


class InputTimes:
    """The times of all inputs of an operator in one call for a key group."""

    def __init__(self, inputs: Iterable[TimeInput], stored: bytes | None, now_ms: int) -> None:
        """`stored` is what the last call has left; None: there was none."""
        self._plans = {plan.name: plan for plan in inputs}
        self._now_ms = now_ms
        before = {} if stored is None else _decode(stored)
        self._ended: dict[str, int] = {}
        """By input the greatest watermark of the splits that end with this batch."""
        self._inputs: dict[str, _Input] = {}
        for name, plan in self._plans.items():
            self._inputs[name] = before.get(name) or self._begun(plan)

    def _begun(self, plan: TimeInput) -> _Input:
        """An input before its first batch."""
        moment, delay_ms = self._moment(plan), plan.max_delay_ms + 1
        splits: dict[str, _Split] = {}
        for name, latest in plan.splits.items():
            splits[name] = _Split(None if latest is None else latest - delay_ms, moment)
        return _Input(None, moment, False, delay_ms, splits)

    def take(self, mark: Mark) -> None:
        """What a task says; marks of an input that the job has no longer are left out."""
        if mark.input not in self._inputs:
            return
        state, moment = self._inputs[mark.input], self._moment(self._plans[mark.input])
        state.active_ms, state.is_idle = moment, mark.is_idle
        state.delay_ms = self._plans[mark.input].max_delay_ms + 1
        for name, watermark in mark.watermarks.items():
            split = state.splits.setdefault(name, _Split(None, moment))
            split.watermark, split.active_ms = _later(split.watermark, watermark), moment
        for name in mark.ended:
            ended_split = state.splits.pop(name, None)
            if ended_split is not None and ended_split.watermark is not None:
                before = self._ended.get(mark.input, ended_split.watermark)
                self._ended[mark.input] = max(before, ended_split.watermark)

    @property
    def watermark(self) -> int | None:
        """The watermark of the slowest input that is not idle; None: not known."""
        for name, state in self._inputs.items():
            # The last split that ends moves event time, too; others hold it back.
            now = self._of_splits(name) if state.splits else self._ended.get(name)
            state.reached = _later(state.reached, now)
        idle = {name for name in self._inputs if self._is_idle(name)}
        return combined(self._inputs.keys() - idle, idle, lambda name: self._inputs[name].reached)

    @property
    def is_idle(self) -> bool:
        return all(map(self._is_idle, self._inputs))

    @property
    def idle_at_ms(self) -> int | None:
        """When the next split becomes idle that is not; None: none does."""
        times: list[int] = []
        for name, state in self._inputs.items():
            idle_after_ms = self._plans[name].idle_after_ms
            if idle_after_ms is not None:
                times += [time + idle_after_ms for time in state.active_times()]
        return min((time for time in times if time > self._now_ms), default=None)

    def stored(self) -> bytes:
        """What the next call gets."""
        data: bytes = _encode(self._inputs)
        return data

    def _of_splits(self, name: str) -> int | None:
        """The least watermark of the splits; where all are idle, the greatest."""
        plan, splits = self._plans[name], self._inputs[name].splits
        idle = {split for split in splits if self._is_quiet(plan, splits[split].active_ms)}
        return combined(splits.keys() - idle, idle, lambda split: splits[split].watermark)

    def _is_idle(self, name: str) -> bool:
        plan, state = self._plans[name], self._inputs[name]
        return state.is_idle or all(self._is_quiet(plan, time) for time in state.active_times())

    def _is_quiet(self, plan: TimeInput, active_ms: int) -> bool:
        return plan.idle_after_ms is not None and self._now_ms - active_ms >= plan.idle_after_ms

    def _moment(self, plan: TimeInput) -> int:
        """This batch, where it matters: what does not change is not written again."""
        return 0 if plan.idle_after_ms is None else self._now_ms


def latest_times(stored: bytes) -> dict[str, dict[str, int]]:
    """By source and split the greatest event time that was read, of what `InputTimes` has stored.

    Of a source that several operators give event times it is one of theirs.
    """
    times: dict[str, dict[str, int]] = {}
    for name, state in _decode(stored).items():
        splits = times.setdefault(name.rpartition("/")[0], {})
        for split, split_state in state.splits.items():
            if split_state.watermark is not None:
                splits[split] = split_state.watermark + state.delay_ms
    return times


def _later(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else max(one, other)
