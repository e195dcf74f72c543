"""Partitions: the state of one application, shared by processes that each have some of it.

Invariants: a partition is a database of its own, with its own log, checkpoints and fence, so that
of two processes that open it only the later one goes on; its positions are in the same checkpoints
as its state, so the next owner goes on exactly there.
"""

import logging
import math
import threading
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from tidelog.catalog.application import Application, check_partition
from tidelog.changelog.upload_config import UploadConfig
from tidelog.checkpoint.config import CheckpointConfig
from tidelog.errors import ConfigError, require
from tidelog.events import Event
from tidelog.library.database import Database
from tidelog.library.event_loop import EventLoop
from tidelog.library.partition_jobs import PartitionJobs, close_job, errors_of, start_all
from tidelog.library.state_job import StateJob
from tidelog.library.states import State, check_states
from tidelog.runtime.config import JobConfig
from tidelog.state.key_groups import checked_key, key_group
from tidelog.storage.object_names import MOST_PARTITIONS
from tidelog.storage.open import Url

logger = logging.getLogger(__name__)

_INTERVAL_S: Final = 10.0
"""Between two checkpoints of a partition unless a configuration says otherwise."""


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
    if config is None:
        config = JobConfig(
            checkpoint=CheckpointConfig(interval=_INTERVAL_S),
            upload=UploadConfig(max_age=_INTERVAL_S),
        )
    require("config=", repr(config), isinstance(config, JobConfig), "a JobConfig")
    if partitions is not None:
        fits = type(partitions) is int and 1 <= partitions <= MOST_PARTITIONS
        require("partitions=", repr(partitions), fits, f"a number from 1 to {MOST_PARTITIONS}")
    require("name=", repr(name), isinstance(name, str), "a text")
    check_states(state)
    event_loop = EventLoop()
    try:
        jobs = PartitionJobs(url, state, name, config, options, log_url, event_loop)
        application = event_loop.ask(jobs.begin_application(partitions))
    except BaseException:
        event_loop.close()
        raise
    return Partitions(application, event_loop, jobs)


class _Open(NamedTuple):
    job: StateJob
    database: Database


class Partitions:
    """The partitions of an application that this process has, each a `Database` by its number.

    Operations may come from any thread. What is done to one partition, also by a newer owner that
    fences it, is none of the others' business.
    """

    def __init__(
        self, application: Application, event_loop: EventLoop, jobs: PartitionJobs
    ) -> None:
        self.url = jobs.url
        self._application = application
        self._event_loop = event_loop
        self._jobs = jobs
        self._open: dict[int, _Open] = {}
        self._change_lock = threading.RLock()
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
        with self._change_lock:
            self._check_open()
            self._close([n for n in numbers if n in self and self[n].ended], None)
            opened: dict[int, _Open] = {}
            for number in sorted(numbers.difference(self._open)):
                job = self._jobs.job(number)
                opened[number] = _Open(job, Database(job, partial(self._forget, number, job)))
            self._event_loop.ask(start_all([entry.job for entry in opened.values()]))
            self._open |= opened
            return {number: entry.database for number, entry in opened.items()}

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
        work = {job.label: job.checkpoint_changes() for job in self._end_steps()}
        _raise_first(self._event_loop.ask(errors_of(work)))

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

    def _forget(self, partition: int, job: StateJob) -> None:
        """The database of this job was closed; a newer one of the partition may be open."""
        if partition in self._open and self._open[partition].job is job:
            del self._open[partition]

    def _close(self, partitions: Iterable[int], timeout_s: float | None) -> dict[str, Exception]:
        """Close partitions, with a last checkpoint within a time or, for None, without.

        Returns the errors of those whose checkpoint failed, by their labels.
        """
        with self._change_lock:
            work: dict[str, Coroutine[Any, Any, None]] = {}
            for number in self._open.keys() & set(partitions):
                job = self._open.pop(number).job
                in_step = job.program.steps.in_step  # of the calling thread
                work[job.label] = close_job(job, timeout_s, in_step=in_step)
            # When all is closed the event loop has ended.
            return self._event_loop.ask(errors_of(work)) if work else {}

    def _end(self, timeout_s: float | None) -> None:
        with self._change_lock:
            if self._closed or self._event_loop.forked:
                return
            self._closed = True
            try:
                errors = self._close(list(self._open), timeout_s)
                self._event_loop.ask(self._jobs.close())
            finally:
                self._event_loop.close()
        _raise_first(errors)

    def _end_steps(self) -> list[StateJob]:
        """End the steps of the calling thread; raises ConfigError within a block of one."""
        jobs = [entry.job for entry in list(self._open.values())]
        for job in jobs:
            job.check_between_blocks("a checkpoint")
        for job in jobs:
            job.program.steps.end_step()
        return jobs

    def _check_open(self) -> None:
        if self._closed:
            raise ConfigError(
                f"application {self.url}",
                expected="one that is open",
                found="one that was closed",
                action="call open_partitions again",
            )


def _raise_first(errors: Mapping[str, Exception]) -> None:
    if errors:
        first, *rest = errors.values()
        for error in rest:
            first.add_note(str(error))
        raise first
