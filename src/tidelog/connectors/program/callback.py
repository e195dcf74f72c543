"""A function as a sink: at least once.

Invariant: the function has seen every record, in order, before the checkpoint behind it.
"""

from collections.abc import Callable, Sequence
from typing import Any

from tidelog.ids import CheckpointId
from tidelog.runtime.sink import Sink, SinkContext, SinkWriter


class Callback(Sink):
    """Calls `function(record)` for every record and `flush()` at every checkpoint.

    Both run in the event loop's process and should be short; after a failure, records since the
    last checkpoint come again. Their exceptions pass through and stop the job.
    """

    def __init__(
        self, function: Callable[[Any], object], flush: Callable[[], object] | None = None
    ) -> None:
        self._function = function
        self._flush = flush

    def open(self, context: SinkContext) -> "CallbackWriter":
        return CallbackWriter(self._function, self._flush)


class CallbackWriter(SinkWriter):
    """Hands records to the function."""

    def __init__(
        self, function: Callable[[Any], object], flush: Callable[[], object] | None
    ) -> None:
        self._function = function
        self._flush = flush

    def write(self, records: Sequence[Any]) -> None:
        """Call the function for each."""
        for record in records:
            self._function(record)

    def pre_commit(self, checkpoint: CheckpointId) -> None:
        """Call `flush`, if there is one."""
        if self._flush is not None:
            self._flush()
