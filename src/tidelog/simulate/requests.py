"""What an operator asks of a running job: savepoints, and to stop with one.

Invariant: a request that fails changes nothing; the job goes on.
"""

from random import Random
from typing import Final

from tidelog.effects import SystemClock
from tidelog.errors import TidelogError
from tidelog.runtime.runner import JobRunner

_WITHIN_S: Final = 3.0
_STOP: Final = 0.4
"""Share of the requests that stop the job."""


async def ask_for_savepoints(runner: JobRunner, rng: Random) -> None:
    """Ask now and then, until cancelled."""
    sleep = SystemClock().sleep
    while True:
        await sleep(rng.random() * _WITHIN_S)
        native = rng.random() < 0.5
        try:
            if rng.random() < _STOP:
                await runner.stop(format="native" if native else "canonical")
            else:
                await runner.savepoint(format="native" if native else "canonical")
        except TidelogError:
            continue
