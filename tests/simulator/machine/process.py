"""One process of a simulated job: its clock, its randomness, its threads, and its death.

Invariants: nothing a dead process does has an effect; two processes share nothing but the
store and the sinks' outside world.
"""

import asyncio
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, ParamSpec, TypeVar

from tests.simulator.machine.loop import OWNER
from tidelog import Effects, StoreUnreachableError
from tidelog.effects import InlineOffload, Offload, SystemClock, to_end

P = ParamSpec("P")
T = TypeVar("T")

EPOCH_MS = 1_700_000_000_000
_THREAD_S = 0.02
"""The longest time that most functions take in a simulated thread ..."""
_BUSY_S = 0.4
_BUSY = 0.15
"""... and the longest for a share that find the machine busy."""


@dataclass(slots=True, eq=False)
class Process:
    """What the surroundings know of an incarnation's process."""

    name: str
    rng: Random
    dead: bool = False
    cut_off_until: float = 0.0
    """Virtual time until which no request of the process reaches the store."""
    in_doubt: asyncio.Event = field(default_factory=asyncio.Event)
    """The process took a slot and the answer will be lost: the worst moment for a fault."""
    suspension: tuple[int, float] | None = None
    """The step, counted over its tasks and threads, at which it stands still, and for how long."""
    suspended: asyncio.Event = field(default_factory=asyncio.Event)
    busy_until: float = 0.0
    """Virtual time until which a function keeps the process's event loop busy."""
    _steps: int = 0
    _held_until: float = 0.0

    def held_until(self, now: float) -> float:
        """Implements `Suspendable`: it stands still at one step of its life, or is busy."""
        self._steps += 1
        if self.suspension is not None and self._steps == self.suspension[0]:
            self._held_until = now + self.suspension[1]
            self.suspended.set()
        if self.dead:
            return 0.0
        held, busy = self._held_until, self.busy_until
        return held if held > busy else busy

    def check_alive(self) -> None:
        """Raise for a call of a process that was killed: it never happened."""
        if self.dead:
            raise StoreUnreachableError("the process", found="it was killed", action="restart it")


class ProcessClock(SystemClock):
    """Virtual time as one process sees it; sleeping is asyncio's, on a virtual loop."""

    hand_over_s = 0.0
    """There are no threads."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, process: Process, ahead_ms: int, booted: float
    ) -> None:
        self._loop = loop
        self._process = process
        self._ahead_ms = ahead_ms
        self._booted = booted

    def now_ms(self) -> int:
        return EPOCH_MS + self._ahead_ms + int(self._loop.time() * 1000)

    def monotonic(self) -> float:
        now, busy = self._loop.time(), self._process.busy_until
        return (now if now > busy else busy) - self._booted


def now_ms() -> int:
    """Virtual time in milliseconds since 1970, for a function of a job."""
    return EPOCH_MS + int(asyncio.get_running_loop().time() * 1000)


def work(seconds: float) -> None:
    """What a function of a job calls that takes its time: meanwhile its process does nothing else.

    Outside of a simulated process it takes none.
    """
    process = OWNER.get()
    if isinstance(process, Process):
        now = asyncio.get_running_loop().time()
        process.busy_until = max(process.busy_until, now) + seconds


class SimulatedThreads(InlineOffload):
    """Runs functions a little later, as a thread pool does: meanwhile the loop goes on.

    Who stops waiting does not stop the function.
    """

    def __init__(self, process: Process) -> None:
        self._process = process

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        rng = self._process.rng
        seconds = rng.random() * (_BUSY_S if rng.random() < _BUSY else _THREAD_S)

        def work() -> None:
            if self._process.dead:
                answer.cancel()
                return
            try:
                result = function(*args, **kwargs)
            except Exception as error:
                if not answer.cancelled():
                    answer.set_exception(error)
            else:
                if not answer.cancelled():
                    answer.set_result(result)

        loop.call_later(seconds, work)
        value: T = await answer
        return value

    async def run_to_end(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await to_end(self.run(function, *args, **kwargs))

    wait = run
    """No function of a simulated job waits for ever."""


def effects_of(
    process: Process, *, threads: bool = False, ahead_ms: int = 0, booted: float = 0.0
) -> Effects:
    """The outside world of a process; to be called within the loop it runs on."""
    loop = asyncio.get_running_loop()
    offload: Offload = SimulatedThreads(process) if threads else InlineOffload()
    return Effects(ProcessClock(loop, process, ahead_ms, booted), process.rng, offload)


_MOVES = 0.3
_DAMAGE = 0.4


class Machines:
    """Where the next incarnation runs."""

    def __init__(self, root: Path, rng: Random) -> None:
        self._root = root
        self._rng = rng
        self._number = 0

    @property
    def local_copies(self) -> Path:
        """The directory for local recovery on the machine in use."""
        return self._root / f"machine-{self._number}"

    def move(self) -> None:
        """Another machine: the old one is still in use."""
        self._number += 1

    def after_crash(self) -> str:
        """What a crash leaves of the local copies; says what happened."""
        if self._rng.random() < _MOVES:
            self.move()
            return "on another machine"
        if self._rng.random() < _MOVES:
            shutil.rmtree(self.local_copies, ignore_errors=True)
            return "on an empty disk"
        if self._rng.random() < _DAMAGE and self._damage():
            return "on a damaged disk"
        return "on the same disk"

    def _damage(self) -> bool:
        """Truncate one file, or turn a bit of it."""
        files = sorted(path for path in self.local_copies.rglob("*") if path.is_file())
        if not files:
            return False
        path = files[self._rng.randrange(len(files))]
        data = path.read_bytes()
        at = self._rng.randrange(max(1, len(data)))
        flipped = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :] if data else b"x"
        path.write_bytes(data[:at] if self._rng.random() < 0.5 else flipped)
        return True
