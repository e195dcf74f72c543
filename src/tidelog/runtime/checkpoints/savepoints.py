"""Requests for savepoints of a running job, and their answers.

Invariants: every request is answered once, at the latest when the job ends; no savepoint gets the
name of another one in the store.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from tidelog.checkpoint.manifest import Checkpoint, Savepoint
from tidelog.checkpoint.request import SavepointRequest, check_name
from tidelog.errors import ConfigError, SavepointFailedError, TidelogError
from tidelog.ids import Slot


@dataclass(slots=True)
class Savepoints:
    """The requests of one incarnation."""

    names: dict[str, Slot] = field(default_factory=dict)
    """The slots of all savepoints in the store, by name."""
    stopped: Savepoint | None = None
    """The savepoint that the job has stopped with."""
    _waiting: dict[SavepointRequest, asyncio.Future[Savepoint]] = field(default_factory=dict)
    _stored: dict[str, Savepoint] = field(default_factory=dict)

    def known(self, checkpoints: Iterable[Checkpoint]) -> None:
        """Account for checkpoints that exist."""
        for entry in checkpoints:
            if isinstance(entry, Savepoint):
                self.names[entry.name] = entry.slot
                self._stored[entry.name] = entry

    def name(self, wanted: str | None, now_ms: int) -> str:
        """The wanted name, or a new one; raises ConfigError for one that is taken or not valid."""
        if wanted is None:
            now = datetime.fromtimestamp(now_ms / 1000, UTC)
            default = name = f"savepoint-{now:%Y%m%d-%H%M%S}"
            number = 1
            while name in self.names:
                number += 1
                name = f"{default}-{number}"
            return name
        if check_name(wanted) in self.names:
            raise ConfigError(
                f"savepoint name {wanted!r}",
                expected="a name that no other savepoint of this store has",
                found=f"it is that of slot {self.names[wanted]}",
                action="choose another name",
            )
        return wanted

    def ask(self, request: SavepointRequest) -> asyncio.Future[Savepoint]:
        """A future for the answer to a request that is about to be made."""
        answer = asyncio.get_running_loop().create_future()
        self._waiting[request] = answer
        return answer

    def completed(self, request: SavepointRequest) -> None:
        """The savepoint is durable, and sinks have committed it."""
        entry = self._stored[request.name]
        if request.stop:
            self.stopped = entry
        answer = self._waiting.pop(request, None)
        if answer is not None and not answer.done():
            answer.set_result(entry)

    def failed(self, request: SavepointRequest, reason: str) -> None:
        """The savepoint was refused or given up; the job goes on."""
        self._fail(
            request,
            SavepointFailedError(
                f"savepoint {request.name!r}",
                expected="to be completed",
                found=reason,
                action="the job goes on; mend the cause and ask again, under another name if "
                "`tidelog checkpoints list URL` shows this one all the same",
            ),
        )

    def ended(self) -> None:
        """The job is over: all requests that are left fail."""
        for request in list(self._waiting):
            self._fail(request, over(f"savepoint {request.name!r}"))

    def _fail(self, request: SavepointRequest, error: TidelogError) -> None:
        answer = self._waiting.pop(request, None)
        if answer is not None and not answer.done():
            answer.set_exception(error)
            answer.exception()  # without a client asyncio would complain


def over(what: str) -> SavepointFailedError:
    """The error of a request that the end of the job overtook."""
    return SavepointFailedError(
        what,
        expected="a running job",
        found="the job ended before it was done",
        action="see what the job said, and whether `tidelog checkpoints list URL` shows the "
        "savepoint; the next start resumes from the newest slot",
    )
