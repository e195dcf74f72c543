"""Engines: units of work on a store run in this process, in several processes, or by Spark.

Invariants: a unit and its result are small and can be pickled; a unit opens the store itself,
writes to a directory of its own alone, and leaves nothing behind; an error comes back as it was,
whatever process it was raised in; the first error of a unit ends the run, and no process outlives
it; a task that Spark runs twice counts once.
"""

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from os import cpu_count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, ClassVar, Final, Protocol, TypeVar

from tidelog.concurrency import Progress, gather_bounded
from tidelog.effects import Effects
from tidelog.errors import TidelogError, usable_path
from tidelog.spark.session import SparkJobs
from tidelog.storage.open import StoreAccess
from tidelog.storage.port import ObjectStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

R = TypeVar("R")
Result_co = TypeVar("Result_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Workspace:
    """Where a unit runs; `directory` is its own, and is removed after it."""

    store: ObjectStore
    effects: Effects
    directory: Path


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """How a process opens the store and where it keeps files; it can be pickled."""

    url: str
    """URL of the store, as every process can open it."""
    access: StoreAccess = field(default_factory=StoreAccess)
    directory: str | None = None
    """Where files are kept meanwhile; None: the system's temporary directory."""


class Unit(Protocol[Result_co]):
    """A part of the work on a store."""

    @property
    def weight(self) -> int:
        """About how many bytes it reads."""
        ...

    async def run(self, workspace: Workspace) -> Result_co:
        """Do the work; raises what cannot be a part of the result, such as a store out of reach."""
        ...


class Engine(Protocol):
    """Runs units, many at a time."""

    @property
    def name(self) -> str:
        """The name that option --engine takes."""
        ...

    @property
    def workers(self) -> int:
        """How many units it runs at a time."""
        ...

    async def run(self, units: Sequence[Unit[R]], progress: Progress) -> list[R]:
        """The results in the order of `units`; raises the first error of any."""
        ...


def work(unit: Unit[R], config: WorkerConfig) -> R | TidelogError:
    """Run a unit in this process; an error is returned."""
    try:
        return asyncio.run(_work(unit, config))
    except TidelogError as error:
        return error


async def _work(unit: Unit[R], config: WorkerConfig) -> R:
    effects = Effects()
    with closing(effects.offload), _scratch(config.directory) as directory:
        store = config.access.open(config.url, effects)
        try:
            return await unit.run(Workspace(store, effects, directory))
        finally:
            await store.close()


def _result(outcome: R | TidelogError) -> R:
    """What `work` has returned; raises the error if it is one."""
    if isinstance(outcome, TidelogError):
        raise outcome
    return outcome


@contextmanager
def _scratch(parent: str | None) -> Iterator[Path]:
    """An empty directory, removed in the end; raises ConfigError where there can be none."""
    with usable_path(
        f"directory {parent or 'for temporary files'}",
        expected="one that can be written to, with room for the tables of a few partitions",
        action="choose another --work-dir",
    ):
        directory = TemporaryDirectory(prefix="tidelog-", dir=parent)
    with directory as path:
        yield Path(path)


_WORTH_PROCESSES: Final = 64 << 20
"""Below so many bytes, starting processes takes longer than the work."""


@dataclass(frozen=True, slots=True)
class LocalEngine:
    """Plain Python; `jobs` is the number of processes, None: as many as the work is worth."""

    store: ObjectStore
    effects: Effects
    config: WorkerConfig
    jobs: int | None = None

    name: ClassVar[str] = "local"

    @property
    def workers(self) -> int:
        """Most processes that run units at a time; little work is done in one."""
        return self.jobs or cpu_count() or 1

    async def run(self, units: Sequence[Unit[R]], progress: Progress) -> list[R]:
        """Run all units; raises the first error of any."""
        worth = self.jobs or sum(unit.weight for unit in units) > _WORTH_PROCESSES
        jobs = min(self.workers if worth else 1, len(units))
        if jobs > 1:
            return await self._run_elsewhere(units, progress, jobs)
        results = []
        for done, unit in enumerate(units):
            with _scratch(self.config.directory) as directory:
                results.append(await unit.run(Workspace(self.store, self.effects, directory)))
            progress(done + 1, len(units))
        return results

    async def _run_elsewhere(
        self, units: Sequence[Unit[R]], progress: Progress, jobs: int
    ) -> list[R]:
        loop = asyncio.get_running_loop()
        # Forked, a process would inherit threads of ours that hold locks.
        pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"))

        async def run(number: int) -> R:
            return _result(await loop.run_in_executor(pool, work, units[number], self.config))

        try:
            results = await gather_bounded(range(len(units)), run, progress, jobs)
        finally:
            pool.shutdown(cancel_futures=True)
        return list(results.values())


@dataclass(frozen=True, slots=True)
class SparkEngine:
    """A batch job of one task per unit; `command` names it, such as `tidelog verify`."""

    session: "SparkSession"
    effects: Effects
    config: WorkerConfig
    command: str

    name: ClassVar[str] = "spark"

    @property
    def workers(self) -> int:
        """The cores of its executors."""
        return self.session.sparkContext.defaultParallelism

    async def run(self, units: Sequence[Unit[R]], progress: Progress) -> list[R]:
        """Run all units; raises the first error of any, RestoreError when the job fails."""
        if not units:
            return []

        def run() -> list[R | TidelogError]:
            tasks = self.session.sparkContext.parallelize(units, len(units))
            return list(tasks.map(partial(work, config=self.config)).collect())

        outcomes = await SparkJobs(self.session, self.effects, self.command).run(run, progress)
        progress(len(units), len(units))
        return [_result(outcome) for outcome in outcomes]
