"""Operators: what a task runs on its buffers.

Invariants: an operator is called by one task only and never awaits, so state is consistent
between calls; outputs come as batches, lazily where they may be many or take long, so that
back-pressure, flushes and the turns of others can happen between them. Timers and `finish` yield
`PAUSE` where a barrier may pass; while timers fire, also `process` is called there, and event time
may have moved on, but no other timers begin to fire. What of a key is due by event time then, or
may be, is emitted before what its records make.
"""

from abc import ABC
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tidelog.effects import Clock
from tidelog.errors import ConfigError
from tidelog.runtime.channels.messages import Batch, KeyedBatch, SideBatch
from tidelog.runtime.operators.turn import Turn
from tidelog.state.backend import KeyedBackend
from tidelog.state.event_time import EventTime
from tidelog.state.operator_state import OperatorStates

TIMERS_PER_STEP = 512
"""Timers that fire before a barrier may pass, if the turn does not end earlier."""


@dataclass(frozen=True, slots=True)
class OperatorContext:
    """With what an operator runs."""

    clock: Clock
    backend: KeyedBackend
    operator_states: OperatorStates = field(default_factory=OperatorStates)
    operator: str = ""
    """The operator's own name in its chain."""
    turn: Turn = field(default_factory=Turn)
    """The task's current turn."""


class Operator(ABC):
    """One step of a task; all hooks but `process` may be left out."""

    late_records: int = 0
    """Records since the start that came when event time had passed them."""
    unfired_timers: int = 0
    """Timers that a function registered at the end of the data, where none fires any more."""
    divisible: bool = True
    """A buffer may be handled in portions, when records take long."""
    emits_at_end: bool = False
    """All output comes of `finish`: without an end of the data there is none."""
    takes_whole_buffers: bool = False
    """The function takes a whole buffer at a call: pieces of one are joined before."""

    def open(self, context: OperatorContext) -> None:
        """Called once before anything else; state is restored already."""

    def process(self, batch: Batch) -> Iterable[Batch]:
        raise NotImplementedError

    def rows_read(self, batch: KeyedBatch) -> list[bytes] | None:
        """The keys of the rows that `process` reads for a buffer, for a table of which parts are
        yet to be fetched; None: the rows of its keys, as its states tell.
        """
        return None

    def watermark(self, time: int) -> Iterable[Batch]:
        return ()

    def tick(self, now_ms: int) -> Iterable[Batch]:
        """Processing time moved on; called a few times a second, also without input."""
        return ()

    def finish(self) -> Iterable[Batch]:
        """All input was handled: emit what is left. Not called when a job is stopped early."""
        return ()

    def close(self) -> None:
        """Release resources; always called."""

    def _on_time(
        self,
        batch: KeyedBatch,
        times: list[int],
        event_time: EventTime,
        is_late: Callable[[int, int], bool],
        tag: str | None,
    ) -> tuple[KeyedBatch, SideBatch | None]:
        """(the records that are not late by their time and the watermark, late ones for the side
        output `tag`); these are counted.
        """
        if not event_time.ahead and not is_late(min(times), event_time.watermark):
            return batch, None
        fields = zip(times, batch.groups, strict=True)
        on_time = [not is_late(time, event_time.of(group)) for time, group in fields]
        self.late_records += on_time.count(False)
        return batch.divided(on_time, tag)


def event_times(batch: Batch) -> list[int]:
    """The event times of a buffer's records; raises ConfigError where they have none."""
    if batch.times is None:
        raise without_event_time("a record", "its stream")
    return batch.times


def without_event_time(what: str, stream: str) -> ConfigError:
    """The error for a stream that an operator needs to have event time."""
    return ConfigError(
        what,
        expected="event time, in each of its streams",
        found=f"none in {stream}",
        action="call .event_time(...) there, before .key_by(...)",
    )


OperatorFactory = Callable[[], Operator]
