"""Workers as processes, forked from one that never had a thread.

Invariants: the process that forks the workers is itself forked before the job has threads or an
event loop, so no fork copies a lock that somebody holds; whatever ends the parent, all workers are
killed, those that are stopped too.
"""

import asyncio
import ctypes
import itertools
import os
import signal
import socket
import struct
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from io import TextIOWrapper
from multiprocessing import current_process
from threading import Lock
from typing import Final, NoReturn

from tidelog.effects import Effects, Offload, hold_thread
from tidelog.errors import NoMoreWorkersError
from tidelog.outlet import outlet_of, settle
from tidelog.runtime.status.watchdog import watched_loop
from tidelog.runtime.workers.link import SocketLink
from tidelog.runtime.workers.parent import WorkerEnd, WorkerProcess
from tidelog.runtime.workers.worker import Work, Worker

_START: Final = b"s"
_KILL: Final = b"k"
_END: Final = b"e"
_PR_SET_PDEATHSIG: Final = 1

Ends = Mapping[int, socket.socket]
"""The sockets of a worker to the others, by their numbers."""


_STATUS: Final = struct.Struct("i")
_RUNNING: Final = -1
_LOOKS: Final = 200
_LOOK_S: Final = 0.01
"""So often, and so far apart, the end of a process is looked for that has closed its sockets."""


class ForkedWorkers:
    """Starts and kills the workers of a job; made before its process has threads."""

    def __init__(self, work: Work) -> None:
        self._workers = work.config.workers
        self._connection, forker_end = socket.socketpair()
        self._asking = Lock()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()  # or every process would write what is in the buffer
        self._forker = os.fork()
        if self._forker == 0:
            self._connection.close()
            _end_after(partial(_serve, forker_end, work))
        forker_end.close()

    async def start(self, offload: Offload) -> Sequence[WorkerProcess]:
        """Start the workers; those of an earlier start are killed."""
        pids, sockets = await offload.run_to_end(self._start)
        return [
            WorkerProcess(
                f"worker {number} (process {pid})",
                partial(SocketLink.open, end),
                partial(offload.run, self._end_of, number),
            )
            for number, (pid, end) in enumerate(zip(pids, sockets, strict=True))
        ]

    def _start(self) -> tuple[Sequence[int], Sequence[socket.socket]]:
        form = f"{self._workers}i"
        try:
            with self._asking:
                self._connection.sendall(_START)
                data, ends, _, _ = socket.recv_fds(
                    self._connection, struct.calcsize(form), self._workers
                )
            return struct.unpack(form, data), [socket.socket(fileno=end) for end in ends]
        except (OSError, struct.error) as error:
            raise self._without_forker(error) from error

    def _end_of(self, number: int) -> WorkerEnd:
        """How a worker ended; raises NoMoreWorkersError."""
        try:
            with self._asking:
                self._connection.sendall(_END + bytes([number]))
                (status,) = _STATUS.unpack(self._connection.recv(_STATUS.size))
        except (OSError, struct.error) as error:
            raise self._without_forker(error) from error
        return end_by(status)

    def _without_forker(self, error: Exception) -> NoMoreWorkersError:
        return NoMoreWorkersError(
            f"process {self._forker}, which starts the workers",
            expected="to be there until the job ends",
            found=f"its end, and with it that of all workers ({error})",
            action="start the job again: it resumes from its last checkpoint",
        )

    async def kill(self, offload: Offload) -> None:
        """Kill the workers that still run, and wait until they are gone."""
        await offload.run_to_end(self._kill)

    def _kill(self) -> None:
        # The workers end with the process that forked them: without it there is none to kill.
        with suppress(OSError), self._asking:
            self._connection.sendall(_KILL)
            self._connection.recv(1)

    def close(self) -> None:
        """No more workers are needed."""
        self._connection.close()
        os.waitpid(self._forker, 0)


def _end_after(call: Callable[[], None]) -> NoReturn:
    """Make a call in a forked process, and end it: it never returns into its parent's code."""
    code = 1
    try:
        call()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        for each in (sys.stdout, sys.stderr):
            with suppress(OSError):
                each.flush()
                settle(each)
        os._exit(code)


def _serve(parent: socket.socket, work: Work) -> None:
    """Fork and kill workers as the parent asks, until it is gone."""
    # What a terminal sends reaches the whole group: the parent says what it means.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    _die_with(os.getppid())
    children: list[_Child] = []
    while True:
        command = parent.recv(1)
        if command == _END:
            parent.sendall(_STATUS.pack(children[parent.recv(1)[0]].end()))
            continue
        for child in children:
            child.kill()
        children = []
        if command == _START:
            children = list(map(_Child, _fork_all(parent, work)))
        elif command == _KILL:
            parent.sendall(_KILL)
        else:
            return


class _Child:
    """A worker, as the process that has forked it sees it: it is waited for once."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._status = _RUNNING

    def end(self) -> int:
        """The wait status of the process once it has ended; `_RUNNING` if it does not end."""
        for _ in range(_LOOKS):
            if self._status != _RUNNING:
                break
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid:
                self._status = status
            else:
                hold_thread(_LOOK_S)
        return self._status

    def kill(self) -> None:
        if self._status == _RUNNING:
            os.kill(self._pid, signal.SIGKILL)
            _, self._status = os.waitpid(self._pid, 0)


def end_by(status: int) -> WorkerEnd:
    """What a wait status says of the end of a worker."""
    if status == _RUNNING:
        return WorkerEnd()
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        action = "see what it has printed: a function, or a library that it uses, has ended it"
        return WorkerEnd(f"its end with exit status {code}", action)
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = str(-code)
    if name == "SIGKILL":
        action = "see who has killed it, and the system's log where it may have run out of memory"
    elif name in {"SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGABRT"}:
        action = "see which library crashes: run with PYTHONFAULTHANDLER=1 to have it printed"
    else:
        action = "see who has sent the signal"
    return WorkerEnd(f"its end by signal {name}", action)


def _fork_all(parent: socket.socket, work: Work) -> list[int]:
    """Fork the workers, with sockets between all of them and to the parent, which gets its ends."""
    numbers = range(work.config.workers)
    controls = [socket.socketpair() for _ in numbers]
    pairs = {pair: socket.socketpair() for pair in itertools.combinations(numbers, 2)}
    forker, children = os.getpid(), []
    for number in numbers:
        child = os.fork()
        if child == 0:
            parent.close()
            _die_with(forker)
            peers = {}
            for (first, second), (of_first, of_second) in pairs.items():
                for owner, other, end in ((first, second, of_first), (second, first, of_second)):
                    if owner == number:
                        peers[other] = end
                    else:
                        end.close()
            for other, (of_worker, of_parent) in enumerate(controls):
                of_parent.close()
                if other != number:
                    of_worker.close()
            _end_after(partial(_live, work, number, controls[number][0], peers))
        children.append(child)
    ends = [of_parent.fileno() for _, of_parent in controls]
    socket.send_fds(parent, [struct.pack(f"{work.config.workers}i", *children)], ends)
    for end in itertools.chain(*controls, *pairs.values()):
        end.close()
    return children


def _live(work: Work, number: int, control: socket.socket, peers: Ends) -> None:
    current_process().name = f"worker {number}"  # `processName` of its log records
    sys.stderr = outlet_of(sys.stderr) or sys.stderr
    if isinstance(sys.stdout, TextIOWrapper):
        # What functions print stands in whole lines among those of other workers.
        sys.stdout.reconfigure(line_buffering=True, write_through=False)
    connects = {other: partial(SocketLink.open, end) for other, end in peers.items()}
    effects = Effects()
    worker = Worker(work, number, os.getpid(), effects)

    async def run() -> None:
        with watched_loop(effects.clock):
            await worker.run(partial(SocketLink.open, control), connects)

    asyncio.run(run())


def _die_with(parent: int) -> None:
    """Linux kills this process with the one that forked it; elsewhere a lost socket ends it."""
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    except (AttributeError, OSError):
        return
    if os.getppid() != parent:
        os._exit(1)
