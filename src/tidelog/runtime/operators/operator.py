"""Operators: what a task runs on its buffers.

Invariants: an operator is called by one task only and never awaits, so state is consistent
between calls; outputs come as batches, lazily where they may be many, so that back-pressure
and flushes can happen between them.
"""

from abc import ABC
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tidelog.effects import Clock
from tidelog.runtime.channels.messages import Batch
from tidelog.state.backend import KeyedBackend
from tidelog.state.operator_state import OperatorStates

OUTPUT_RECORDS = 2048
"""Records per buffer where an operator cuts its own output."""

TIMERS_PER_STEP = 512
"""Timers that fire before a barrier may pass."""


@dataclass(frozen=True, slots=True)
class OperatorContext:
    """What an operator knows about where it runs."""

    name: str
    subtask: int
    parallelism: int
    clock: Clock
    backend: KeyedBackend
    operator_states: OperatorStates = field(default_factory=OperatorStates)
    operator: str = ""
    """The operator's own name in its chain; `name` is that of the whole chain."""


class Operator(ABC):
    """One step of a task; all hooks but `process` may be left out."""

    late_records: int = 0
    """Records dropped since the start because event time had passed them."""

    def open(self, context: OperatorContext) -> None:
        """Called once before anything else; state is restored already."""

    def process(self, batch: Batch) -> Iterable[Batch]:
        """Handle a buffer."""
        raise NotImplementedError

    def watermark(self, time: int) -> Iterable[Batch]:
        """Event time moved on."""
        return ()

    def tick(self, now_ms: int) -> Iterable[Batch]:
        """Processing time moved on; called a few times a second, also without input."""
        return ()

    def finish(self) -> Iterable[Batch]:
        """All input was handled: emit what is left. Not called when a job is stopped early."""
        return ()

    def close(self) -> None:
        """Release resources; always called."""


OperatorFactory = Callable[[], Operator]
