"""The block of a step: `with db.step():`, and `async with db.step():` for tasks.

Invariants: a block belongs to the thread or task that has entered it; whatever leaves it another
way than by its end, after a change, ends the database: nobody can take its changes back.
"""

import weakref
from types import TracebackType
from typing import Any

from tidelog.errors import ConfigError
from tidelog.library.state_job import StateJob
from tidelog.library.steps import StepOwner


class Step:
    """A block of a step.

    A block may be left without its end: by an interrupt between two instructions, or with a
    generator that nobody finishes. Python drops the block then, and calls a weak reference's
    callback. A `__del__` would be called for all blocks, and would swallow an interrupt in it.
    """

    _owner: StepOwner | None = None
    """Who is in the block."""

    def __init__(self, job: StateJob) -> None:
        self._job, self._steps = job, job.program.steps

    def __enter__(self) -> None:
        self._job.check()
        self._enter(self._steps.this_owner())

    def __exit__(
        self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None
    ) -> None:
        owner, leaving = self._owner, self._steps.this_owner()
        if owner is None or owner is not leaving:
            name = "nobody" if owner is None else owner.name
            reason = f"the end of its block in {leaving.name}, where {name} had entered it"
            self._job.break_off(reason)
            raise ConfigError(
                f"a step of {self._job.label}",
                expected="to be left by the thread or task that has entered it",
                found=reason,
                action="enter and leave a block in one function; a dependency or fixture that "
                "yields within one may end elsewhere",
            )
        if error is not None and owner.changed:
            self._job.break_off(f"{type(error).__name__}: {error}")
        elif owner.blocks == 1:
            self._steps.end_step(owner)
        self._leave(owner)

    async def __aenter__(self) -> None:
        self._job.check()
        self._enter(await self._steps.begin_step())

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: Any
    ) -> None:
        self.__exit__(kind, error, trace)

    def _enter(self, owner: StepOwner) -> None:
        job = self._job
        guard = weakref.ref(self, lambda _: _dropped(job, owner))
        # From here on no call: an interrupt comes before all of it or after it.
        self._owner = owner
        owner.guards = (guard, owner.guards)
        owner.blocks += 1

    def _leave(self, owner: StepOwner) -> None:
        self._owner = None
        owner.guards = owner.guards[1]
        owner.blocks -= 1


def _dropped(job: StateJob, owner: StepOwner) -> None:
    owner.blocks -= 1
    if owner.in_step:
        job.break_off(f"a block of {owner.name} that was not left by its end")
