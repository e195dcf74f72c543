"""The jobs of the partitions that a process has: made, started and closed, several at a time.

Invariants: they share the event loop, the connections, the memory and the link of the process; of
those that start together all do, or none; one that fails is closed, and keeps no other one open.
"""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from tidelog.catalog.application import Application, begin_application
from tidelog.concurrency import together
from tidelog.errors import CheckpointFailedError
from tidelog.library.event_loop import EventLoop
from tidelog.library.state_job import StateJob
from tidelog.library.states import State
from tidelog.library.steps import Steps
from tidelog.runtime.config import JobConfig
from tidelog.runtime.subtasks.resources import Resources
from tidelog.storage.object_names import partition_path
from tidelog.storage.open import Connections, Url, from_here, open_store

_EXPECTED_PARTITIONS: Final = 32
"""Partitions that a process is expected to have: each gets this part of the memory."""
_MAX_STARTS: Final = 8
_MAX_CLOSES: Final = 32


class PartitionJobs:
    """Makes the jobs of partitions, and opens the store that says what the application is."""

    def __init__(
        self,
        url: Url,
        states: Mapping[str, State],
        name: str,
        config: JobConfig,
        options: Mapping[str, Any] | None,
        log_url: Url | None,
        event_loop: EventLoop,
    ) -> None:
        """Raises ConfigError as `open_store`; nothing is contacted."""
        self._states, self._name, self._config = states, name, config
        self._partition_config = replace(
            config,
            restore=config.restore.shared_by(_MAX_STARTS, config.memory),
            local_recovery_bytes=config.local_recovery_bytes // _EXPECTED_PARTITIONS,
        )
        self._event_loop = event_loop
        self._connections = Connections()
        effects, count = event_loop.effects, _EXPECTED_PARTITIONS
        self._resources = Resources.of(config, effects.clock, subtasks=count, tables=count)
        self._open_store = partial(
            open_store,
            effects=effects,
            policy=config.retry,
            storage=config.storage,
            options=options,
            connections=self._connections,
        )
        self._root = self._open_store(url, log_url=log_url)
        self.url = self._root.url
        # The program may change its directory before it opens a partition.
        self._url, self._log_url = from_here(url), None if log_url is None else from_here(log_url)

    async def begin_application(self, partitions: int | None) -> Application:
        """The stored application, begun if there is none; raises ConfigError for another one."""
        try:
            return await begin_application(self._root, Application(self._name, partitions))
        finally:
            await self._root.close()

    def job(self, partition: int) -> StateJob:
        """The job of a partition, which has not started."""
        store = self._open_store(
            self._url,
            log_url=self._log_url,
            encryption_key=self._config.encryption_key,
            path=partition_path(partition),
        )
        return StateJob(
            store,
            self._states,
            self._name,
            self._partition_config,
            self._event_loop,
            Steps,
            partition=f"partition {partition} of {self.url}",
            resources=self._resources,
        )

    async def close(self) -> None:
        """Close the connections, when all jobs have ended."""
        await self._connections.close()


async def start_all(jobs: Sequence[StateJob]) -> None:
    """Start all of these jobs, or none."""
    try:
        await together((job.start() for job in jobs), _MAX_STARTS)
    except BaseException:
        await together(job.end() for job in jobs)
        raise


async def errors_of(work: Mapping[str, Coroutine[Any, Any, None]]) -> dict[str, Exception]:
    """Run all of this, whatever fails; the errors of what failed, by its name."""
    errors: dict[str, Exception] = {}

    async def run(name: str, coroutine: Coroutine[Any, Any, None]) -> None:
        try:
            await coroutine
        except Exception as error:
            errors[name] = error

    await together((run(name, coroutine) for name, coroutine in work.items()), _MAX_CLOSES)
    return errors


async def close_job(job: StateJob, timeout_s: float | None, *, in_step: bool) -> None:
    """Close a partition, with a last checkpoint within a time or, for None, without.

    Raises why there is no checkpoint: that it failed, took too long, or that the caller is
    `in_step`.
    """
    try:
        if in_step and timeout_s is not None:
            raise _no_checkpoint(job, "a step of the thread that closes it is open")
        if timeout_s is not None:
            async with asyncio.timeout(timeout_s):
                await job.checkpoint_changes()
    except TimeoutError:
        raise _no_checkpoint(job, f"none after {timeout_s:g} s") from None
    finally:
        await job.end()


def _no_checkpoint(job: StateJob, reason: str) -> CheckpointFailedError:
    return CheckpointFailedError(
        job.label,
        expected="a last checkpoint",
        found=reason,
        action="let the next owner go on from the checkpoint before; nothing is lost or doubled",
    )
