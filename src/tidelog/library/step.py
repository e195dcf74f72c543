"""The block of a step: `with db.step():`, and `async with db.step():` for tasks.

Invariants: a block belongs to the thread or task that has entered it; whatever leaves it another
way than by its end, after a change, ends the database: nobody can take its changes back.
"""

import weakref
from types import TracebackType
from typing import Any

from tidelog.errors import ConfigError
from tidelog.library.state_job import StateJob
from tidelog.library.steps import Caller


class Step:
    """A block of a step.

    Python drops a block where it was left: one that is dropped in its midst was left by an
    interrupt at a bad moment, or with a generator that nobody ends. A weak reference tells, and not
    `__del__`, which would also be called for all others, and swallow an interrupt that comes then.
    """

    _caller: Caller | None = None
    """Who is in the block."""

    def __init__(self, job: StateJob) -> None:
        self._job, self._steps = job, job.program.steps

    def __enter__(self) -> None:
        self._job.check()
        self._enter(self._steps.this_caller())

    def __exit__(
        self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None
    ) -> None:
        caller, leaving = self._caller, self._steps.this_caller()
        if caller is None or caller is not leaving:
            owner = "nobody" if caller is None else caller.name
            reason = f"the end of its block in {leaving.name}, where {owner} had entered it"
            self._job.break_off(reason)
            raise ConfigError(
                f"a step of {self._job.label}",
                expected="to be left by the thread or task that has entered it",
                found=reason,
                action="enter and leave a block in one function; a dependency or fixture that "
                "yields within one may end elsewhere",
            )
        if error is not None and caller.changed:
            self._job.break_off(f"{type(error).__name__}: {error}")
        elif caller.blocks == 1:
            self._steps.end_step(caller)
        self._leave(caller)

    async def __aenter__(self) -> None:
        self._job.check()
        self._enter(await self._steps.begin_step())

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: Any
    ) -> None:
        self.__exit__(kind, error, trace)

    def _enter(self, caller: Caller) -> None:
        job = self._job
        guard = weakref.ref(self, lambda _: _dropped(job, caller))
        # From here on no call: an interrupt comes before all of it or after it.
        self._caller = caller
        caller.guards = (guard, caller.guards)
        caller.blocks += 1

    def _leave(self, caller: Caller) -> None:
        self._caller = None
        caller.guards = caller.guards[1]
        caller.blocks -= 1


def _dropped(job: StateJob, caller: Caller) -> None:
    caller.blocks -= 1
    if caller.in_step:
        job.break_off(f"a block of {caller.name} that was not left by its end")
