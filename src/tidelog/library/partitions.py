"""Partitions: the state of one application, shared by processes that each have some of it.

Invariants: a partition is a database of its own, with its own log, checkpoints and fence, so that
of two processes that open it only the later one goes on; its positions are in the same checkpoints
as its state, so the next owner goes on exactly there. Partitions of a process share its event
loop, its memory and its link.
"""

import asyncio
import logging
import math
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple

from tidelog.catalog.application import Application, begin_application, check_partition
from tidelog.changelog.upload_config import UploadConfig
from tidelog.checkpoint.config import CheckpointConfig
from tidelog.concurrency import together
from tidelog.errors import CheckpointFailedError, ConfigError, require
from tidelog.events import Event
from tidelog.library.database import Database
from tidelog.library.event_loop import EventLoop
from tidelog.library.state_job import StateJob
from tidelog.library.states import State, check_states
from tidelog.library.steps import Steps
from tidelog.runtime.config import JobConfig
from tidelog.runtime.subtasks.resources import Resources
from tidelog.state.key_groups import checked_key, key_group
from tidelog.storage.object_names import MOST_PARTITIONS, partition_path
from tidelog.storage.open import Connections, Url, from_here, open_store
from tidelog.storage.port import ObjectStore

logger = logging.getLogger(__name__)

_INTERVAL_S: Final = 10.0
"""Between two checkpoints of a partition unless a configuration says otherwise."""
_EXPECTED: Final = 32
"""Partitions that a process is expected to have: its memory is cut for so many."""
_OPENED_AT_ONCE: Final = 8
_CLOSED_AT_ONCE: Final = 32


def open_partitions(
    url: Url,
    state: Mapping[str, State],
    *,
    partitions: int | None = None,
    name: str = "database",
    config: JobConfig | None = None,
    options: Mapping[str, Any] | None = None,
    log_url: Url | None = None,
) -> "Partitions":
    """Take part in the application at `url`, or begin it; no partition is opened yet.

    `partitions` is how many there are for ever, said at the first start; without it, as many as the
    input has. The other arguments are those of `tidelog.open`, and hold for each partition; without
    a `config` a changed partition takes a checkpoint every 10 s.

    Raises ConfigError when the stored application is another one, and StorageError.
    """
    chosen = config or JobConfig(
        checkpoint=CheckpointConfig(interval=_INTERVAL_S), upload=UploadConfig(max_age=_INTERVAL_S)
    )
    require("config=", repr(config), isinstance(chosen, JobConfig), "a JobConfig")
    share = replace(
        chosen,
        restore=chosen.restore.shared_by(_OPENED_AT_ONCE, chosen.memory),
        local_recovery_bytes=chosen.local_recovery_bytes // _EXPECTED,
    )
    if partitions is not None:
        fits = type(partitions) is int and 1 <= partitions <= MOST_PARTITIONS
        require("partitions=", repr(partitions), fits, f"a number from 1 to {MOST_PARTITIONS}")
    require("name=", repr(name), isinstance(name, str), "a text")
    check_states(state)
    event_loop, connections = EventLoop(), Connections()
    store_of = partial(
        open_store,
        effects=event_loop.effects,
        policy=chosen.retry,
        options=options,
        connections=connections,
    )

    async def begun(store: ObjectStore) -> Application:
        try:
            return await begin_application(store, Application(name, partitions))
        finally:
            await store.close()

    try:
        root = store_of(url, log_url=log_url)
        base_url, base_log_url = from_here(url), None if log_url is None else from_here(log_url)
        application = event_loop.ask(begun(root))
    except BaseException:
        event_loop.close()
        raise
    resources = Resources.of(chosen, event_loop.effects.clock, subtasks=_EXPECTED, tables=_EXPECTED)

    def job_of(partition: int) -> StateJob:
        path, key = partition_path(partition), chosen.encryption_key
        return StateJob(
            store_of(base_url, log_url=base_log_url, encryption_key=key, path=path),
            state,
            name,
            share,
            event_loop,
            Steps,
            partition=f"partition {partition} of {root.url}",
            resources=resources,
        )

    return Partitions(root.url, application, event_loop, connections, job_of)


class _Open(NamedTuple):
    job: StateJob
    database: Database


class Partitions:
    """The partitions of an application that this process has, each a `Database` by its number.

    Operations may come from any thread. What is done to one partition, also by a newer owner that
    fences it, is none of the others' business.
    """

    def __init__(
        self,
        url: str,
        application: Application,
        event_loop: EventLoop,
        connections: Connections,
        job_of: Callable[[int], StateJob],
    ) -> None:
        self.url = url
        self._application = application
        self._event_loop = event_loop
        self._connections = connections
        self._job_of = job_of
        self._open: dict[int, _Open] = {}
        self._changing = threading.RLock()
        """Held while partitions are opened or closed."""
        self._closed = False

    @property
    def partitions(self) -> int | None:
        """How many partitions the application has; None when it was never said."""
        return self._application.partitions

    def partition_of(self, key: Any) -> int:
        """The partition that a key belongs to, the same in all processes and for ever.

        For applications with a fixed number of partitions and an input that has none; raises
        ConfigError for others.
        """
        if self._application.partitions is None:
            raise ConfigError(
                f"partitions of {self.url}",
                expected="a fixed number",
                found="as many as the input has, which says itself where a key belongs",
                action="take the partition of the message, or begin another application with "
                "open_partitions(..., partitions=...)",
            )
        return key_group(checked_key("key", key), self._application.partitions)

    def assign(self, partitions: Iterable[int]) -> dict[int, Database]:
        """Open the partitions, those that are open already excepted, and return what was opened.

        Each goes on from its last checkpoint: read on from its `position`. One that was open goes
        on where the program is, which is further than its `position`. The owner before is
        fenced. When one cannot be opened none is, and its error is raised: ConfigError,
        StateSchemaError, RestoreError, StorageError, FencedError when another process opens it now.
        """
        numbers = set(partitions)
        for number in numbers:
            check_partition(number, self._application)
        with self._changing:
            self._check_open()
            self._close([n for n in numbers if n in self and self[n].ended], None)
            entries = {n: self._made(n) for n in sorted(numbers) if n not in self}
            self._event_loop.ask(_started([entry.job for entry in entries.values()]))
            self._open |= entries
            return {n: entry.database for n, entry in entries.items()}

    def revoke(self, partitions: Iterable[int], *, timeout_s: float = 30.0) -> None:
        """Close partitions that another process is about to get: after a checkpoint, so that it
        finds all that was done.

        A partition whose checkpoint fails or takes longer than `timeout_s` is closed without, and
        so is one in which a step of the calling thread is open: the next owner does again what came
        after the checkpoint before, and a warning is logged. Numbers of others are passed over.
        """
        for label, error in self._close(partitions, timeout_s).items():
            Event.PARTITION_GIVEN_UP.log(logger, partition=label, reason=error)

    def lose(self, partitions: Iterable[int]) -> None:
        """Close partitions that another process may have already: without a checkpoint.

        What was done since the last one is gone, and will be done again by their next owners.
        """
        self._close(partitions, None)

    def checkpoint(self) -> None:
        """Wait until all that was changed is durable, in all partitions, and end the steps of the
        calling thread. It is a checkpoint of each partition, not one of all at the same moment.

        Raises the first error, such as FencedError of a partition that another process has, when
        all others are durable.
        """
        self._check_open()
        jobs = self._end_steps()
        self._raise_first(
            self._event_loop.ask(_outcomes({job.label: job.checkpoint_changes() for job in jobs}))
        )

    def close(self) -> None:
        """Close all partitions, after a checkpoint of each. Raises as `checkpoint`; all are closed.

        A step that is open is part of its checkpoint.
        """
        self._end_steps()
        self._end(timeout_s=math.inf)

    def __getitem__(self, partition: int) -> Database:
        try:
            return self._open[partition].database
        except KeyError:
            numbers = ", ".join(map(str, self)) or "none"
            raise ConfigError(
                f"partition {partition} of {self.url}",
                expected=f"one that this process has: {numbers}",
                found="one that it was not given, or that was taken from it",
                action="call assign when it is given to this process, and leave the input of other "
                "partitions to those who have them",
            ) from None

    def __contains__(self, partition: object) -> bool:
        return partition in self._open

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(self._open))

    def __len__(self) -> int:
        return len(self._open)

    def __enter__(self) -> "Partitions":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:  # what broke the loop broke a step: the next start goes on from the last one
            self._end(timeout_s=None)

    def _made(self, partition: int) -> _Open:
        job = self._job_of(partition)

        def forget() -> None:
            if partition in self._open and self._open[partition].job is job:
                del self._open[partition]

        return _Open(job, Database(job, forget))

    def _close(self, partitions: Iterable[int], timeout_s: float | None) -> dict[str, Exception]:
        """Close partitions, with a last checkpoint within a time or, for None, without.

        Answers why there is no checkpoint of some, by their labels.
        """
        with self._changing:
            jobs = [self._open.pop(n).job for n in set(partitions) if n in self._open]
            if not jobs:  # also when all is closed
                return {}
            work = {
                job.label: _close(job, timeout_s, in_step=job.program.steps.in_step) for job in jobs
            }
            return self._event_loop.ask(_outcomes(work))

    def _end(self, timeout_s: float | None) -> None:
        with self._changing:
            if self._closed or self._event_loop.forked:
                return
            self._closed = True
            try:
                errors = self._close(list(self._open), timeout_s)
                self._event_loop.ask(self._connections.close())
            finally:
                self._event_loop.close()
        self._raise_first(errors)

    def _end_steps(self) -> list[StateJob]:
        """End the steps of the calling thread; raises ConfigError within a block of one."""
        jobs = [entry.job for entry in list(self._open.values())]
        for job in jobs:
            job.check_between_blocks("a checkpoint")
        for job in jobs:
            job.program.steps.end_step()
        return jobs

    def _raise_first(self, errors: Mapping[str, Exception]) -> None:
        if errors:
            first, *rest = errors.values()
            for error in rest:
                first.add_note(str(error))
            raise first

    def _check_open(self) -> None:
        if self._closed:
            raise ConfigError(
                f"application {self.url}",
                expected="one that is open",
                found="one that was closed",
                action="call open_partitions again",
            )


async def _started(jobs: Iterable[StateJob]) -> None:
    """Start all of them, or none."""
    starting = list(jobs)
    try:
        await together((job.start() for job in starting), _OPENED_AT_ONCE)
    except BaseException:
        await together(job.end() for job in starting)
        raise


async def _close(job: StateJob, timeout_s: float | None, *, in_step: bool) -> None:
    """Close a partition, with a last checkpoint unless there is no time for one."""
    try:
        if timeout_s is not None:
            await _last_checkpoint(job, timeout_s, in_step=in_step)
    finally:
        await job.end()


async def _last_checkpoint(job: StateJob, timeout_s: float, *, in_step: bool) -> None:
    if in_step:
        raise _no_checkpoint(job, "a step of the thread that closes it is open")
    taking = asyncio.ensure_future(job.checkpoint_changes())
    try:
        await asyncio.wait([taking], timeout=None if timeout_s == math.inf else timeout_s)
        if not taking.done():
            raise _no_checkpoint(job, f"none after {timeout_s:g} s")
        taking.result()
    finally:
        taking.cancel()


def _no_checkpoint(job: StateJob, reason: str) -> CheckpointFailedError:
    return CheckpointFailedError(
        job.label,
        expected="a last checkpoint",
        found=reason,
        action="let the next owner go on from the checkpoint before; nothing is lost or doubled",
    )


async def _outcomes(work: Mapping[str, Coroutine[Any, Any, None]]) -> dict[str, Exception]:
    """Do everything, whatever fails; the errors of what failed, by its name."""
    errors: dict[str, Exception] = {}

    async def tried(name: str, coroutine: Coroutine[Any, Any, None]) -> None:
        try:
            await coroutine
        except Exception as error:
            errors[name] = error

    await together((tried(name, coroutine) for name, coroutine in work.items()), _CLOSED_AT_ONCE)
    return errors
