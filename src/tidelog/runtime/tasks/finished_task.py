"""A task that an earlier run has finished: it only sends the end of its data again.

Invariant: it reads nothing, runs no operator and emits no record; consumers learn that no barrier
will come from it.
"""

from tidelog.errors import InvariantError
from tidelog.runtime.channels.gate import Gate
from tidelog.runtime.channels.messages import Barrier, Batch, EndOfChannel, EndOfData, Watermark
from tidelog.runtime.tasks.parts import TaskParts
from tidelog.runtime.tasks.task import Task
from tidelog.state.event_time import MAX_WATERMARK


class FinishedTask(Task):
    """Stands in for a subtask whose finish is part of the restored checkpoint."""

    def __init__(self, parts: TaskParts, gate: Gate | None) -> None:
        super().__init__(parts)
        self._gate = gate
        self.is_source = gate is None

    async def run(self) -> None:
        await self.parts.output.announce(Watermark(MAX_WATERMARK))
        await self.parts.output.announce(EndOfData())
        if self._gate is not None:
            await self._see_out(self._gate)
        await self._exit()

    def _start(self, barrier: Barrier) -> None:
        reason = f"{self.id} had finished before"
        self.parts.listener.declined(barrier.checkpoint, reason)

    def _wake_up(self) -> None:
        """Nothing: its loop never waits for a checkpoint."""

    async def _see_out(self, gate: Gate) -> None:
        """Take what upstream tasks still send: events, and never a record."""
        left = len(gate.channels)
        while left:
            received = await gate.get()
            message = received[1] if isinstance(received, tuple) else None
            if isinstance(message, Batch):
                raise InvariantError(
                    f"the input of {self.id}",
                    expected="no record, for the restored checkpoint says that it finished",
                    found=f"{len(message.records)} records",
                    action="report this as a defect, and restore an older slot",
                    retry_safe=False,
                )
            left -= isinstance(message, EndOfChannel)
