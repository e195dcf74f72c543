"""What an operator asks of a running job: savepoints, and to stop with one or to drain.

Invariant: a request that fails changes nothing; the job goes on.
"""

from collections.abc import Callable
from random import Random
from typing import Final

from tidelog.effects import SystemClock
from tidelog.errors import TidelogError
from tidelog.runtime.runner import JobRunner

_WITHIN_S: Final = 3.0
_LOOKS_S: Final = 0.5
_STOP: Final = 0.4
"""Share of the requests that stop the job."""


async def ask_for_savepoints(runner: JobRunner, rng: Random, drains: float) -> None:
    """Ask now and then, until cancelled; a share of the requests that stop the job drain it."""
    sleep = SystemClock().sleep
    while True:
        await sleep(rng.random() * _WITHIN_S)
        native = rng.random() < 0.5
        try:
            if rng.random() < _STOP:
                drain = drains > 0 and rng.random() < drains
                await runner.stop(format="native" if native else "canonical", drain=drain)
            else:
                await runner.savepoint(format="native" if native else "canonical")
        except TidelogError:
            continue


async def drain_when(done: Callable[[], bool], runner: JobRunner) -> None:
    """Drain a job once it has done what it was to do, however often that takes asking."""
    while True:
        await SystemClock().sleep(_LOOKS_S)
        if not done():
            continue
        try:
            await runner.stop(drain=True)
        except TidelogError:
            continue
        return
