"""One process of a simulated job: its clock, its randomness, its threads, and its death.

Invariants: nothing a dead process does has an effect; two processes share nothing but the
store and the sinks' outside world.
"""

import asyncio
import errno
import os
import shutil
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, ParamSpec, TypeVar

from tests.simulator.machine.loop import OWNER, VirtualLoop, run_virtual
from tidelog import StoreUnreachableError
from tidelog.concurrency import to_end
from tidelog.effects import Effects, InlineOffload
from tidelog.state.recovery import pacing, partial_file

P = ParamSpec("P")
T = TypeVar("T")

EPOCH_MS = 1_700_000_000_000
_TAIL_BYTES, _RANGE_BYTES = 300, 1000
"""Enough to find where the tail of a file begins, and less than most tails."""
_THREAD_S = 0.02
"""The longest time that most functions take in a simulated thread ..."""
_BUSY_S = 0.4
_BUSY = 0.15
"""... and the longest for a share that find the machine busy."""


@dataclass(slots=True, eq=False)
class Process:
    """What the surroundings know of an incarnation's process, and its clock."""

    name: str
    rng: Random
    ahead_ms: int = 0
    """How much its wall clock is ahead."""
    booted: float = 0.0
    """Virtual time from which its monotonic clock counts."""
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
    damaged: bool = False
    """A part of an object arrived at the process that was not what is stored."""
    file_s: float = 0.0
    """Virtual seconds until the whole of a table's file arrives at the process, at most."""
    arrivals: dict[str, float] = field(default_factory=dict)
    """When the files arrive that it has asked for."""
    full_disks: float = 0.0
    """Share of the parts of table files that find its disk full."""
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

    def now_ms(self) -> int:
        return self.ahead_ms + now_ms()

    def monotonic(self) -> float:
        now, busy = asyncio.get_running_loop().time(), self.busy_until
        return (now if now > busy else busy) - self.booted

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def hand_over(self, seconds: float) -> None:
        """There are no threads."""

    def check_alive(self) -> None:
        """Raise for a call of a process that was killed: it never happened."""
        if self.dead:
            raise StoreUnreachableError("the process", found="it was killed", action="restart it")


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


@contextmanager
def small_files() -> Iterator[None]:
    """Tables of a few rows arrive in as many parts as large ones, on disks that may be full, as the
    processes say that write them.
    """
    write, sizes = os.pwrite, (partial_file.TAIL_MINIMUM, partial_file.RANGE_BYTES)
    first_bytes = pacing.FIRST_BYTES

    def write_or_fail(file: int, data: Any, offset: int) -> int:
        process = OWNER.get()
        if not isinstance(process, Process) or process.full_disks == 0.0:
            return write(file, data, offset)
        if process.rng.random() < process.full_disks:
            raise OSError(errno.ENOSPC, "the disk is full (simulated)")
        return write(file, data, offset)

    os.pwrite = write_or_fail
    partial_file.TAIL_MINIMUM, partial_file.RANGE_BYTES = _TAIL_BYTES, _RANGE_BYTES  # type: ignore[misc]
    pacing.FIRST_BYTES = (_RANGE_BYTES, _RANGE_BYTES)  # type: ignore[misc]
    try:
        yield
    finally:
        os.pwrite = write
        partial_file.TAIL_MINIMUM, partial_file.RANGE_BYTES = sizes  # type: ignore[misc]
        pacing.FIRST_BYTES = first_bytes  # type: ignore[misc]


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
            settle: Callable[[Any], None]
            outcome: Any
            try:
                settle, outcome = answer.set_result, function(*args, **kwargs)
            except Exception as error:
                settle, outcome = answer.set_exception, error
            if not answer.cancelled():
                settle(outcome)

        loop.call_later(seconds, work)
        value: T = await answer
        return value

    async def run_to_end(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await to_end(self.run(function, *args, **kwargs))

    wait = run
    """No function of a simulated job waits for ever."""


class SimulatedAside:
    """Runs a coroutine in a loop of its own, while its process stops and the others wait.

    Its time goes on from that of the process, which is busy as long.
    """

    def __init__(self, process: Process, effects: Effects) -> None:
        self._process, self._beside = process, effects
        self.effects = replace(effects, offload=InlineOffload())

    def run(self, work: Callable[[], Coroutine[Any, Any, T]], seconds: float) -> T:
        async def limited() -> T:
            return await asyncio.wait_for(work(), seconds)

        outer = asyncio.get_running_loop()
        began = max(outer.time(), self._process.busy_until)
        inner = VirtualLoop(began=began)
        asyncio._set_running_loop(None)
        try:
            return run_virtual(limited(), inner)
        finally:
            asyncio._set_running_loop(outer)
            self._process.busy_until = inner.time()

    async def go(self, work: Callable[[Effects], Coroutine[Any, Any, T]]) -> T:
        return await work(self._beside)

    def close(self, last: Callable[[], Coroutine[Any, Any, None]] | None = None) -> None:
        """Nothing is open."""


def effects_of(process: Process, *, threads: bool = False) -> Effects:
    """The outside world of a process."""
    offload = SimulatedThreads(process) if threads else InlineOffload()
    return Effects(process, process.rng, offload, partial(SimulatedAside, process))


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
        path = self._rng.choice(files)
        data = path.read_bytes()
        at = self._rng.randrange(len(data) or 1)
        flipped = bytes(byte ^ 1 for byte in data[at : at + 1]) + data[at + 1 :]
        path.write_bytes(data[:at] + (b"" if self._rng.random() < 0.5 else flipped))
        return True
