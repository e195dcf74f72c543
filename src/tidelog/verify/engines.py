"""Engines: units checked in this process, in several processes, or by Spark.

Invariants: a unit opens the store itself and leaves nothing behind; what is not a finding comes
back as the error it is, whole, whatever process it was in; the first error of a unit ends the run,
and no process outlives it; a task that Spark runs twice counts once.
"""

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from os import cpu_count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, ClassVar, Final

from tidelog.concurrency import Progress, gather_bounded
from tidelog.effects import Effects
from tidelog.errors import TidelogError, usable_path
from tidelog.spark.session import SparkJobs
from tidelog.storage.port import ObjectStore
from tidelog.verify.unit import Unit, UnitResult, WorkerConfig, Workspace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def work(unit: Unit, config: WorkerConfig) -> UnitResult | TidelogError:
    """Check a unit; an error that is no finding is returned."""
    try:
        return asyncio.run(_work(unit, config))
    except TidelogError as error:
        return error


def checked(result: UnitResult | TidelogError) -> UnitResult:
    """What `work` has returned; raises the error if it is one."""
    if isinstance(result, TidelogError):
        raise result
    return result


async def _work(unit: Unit, config: WorkerConfig) -> UnitResult:
    effects = Effects()
    with closing(effects.offload), _scratch(config.directory) as directory:
        store = config.access.open(config.url, effects)
        try:
            return await unit.check(Workspace(store, effects, directory))
        finally:
            await store.close()


@contextmanager
def _scratch(parent: str | None) -> Iterator[Path]:
    """An empty directory, removed in the end; raises ConfigError where there can be none."""
    with usable_path(
        f"directory {parent or 'for temporary files'}",
        expected="one that can be written to, with room for the tables of a few partitions",
        action="choose another --work-dir",
    ):
        directory = TemporaryDirectory(prefix="tidelog-verify-", dir=parent)
    with directory as path:
        yield Path(path)


_WORTH_PROCESSES: Final = 64 << 20
"""Below so many bytes, starting processes takes longer than checking here."""


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
        """Most processes that check units at a time; little work is done in one."""
        return self.jobs or cpu_count() or 1

    async def run(self, units: Sequence[Unit], progress: Progress) -> list[UnitResult]:
        """Check all units; raises the first error of any."""
        worth = self.jobs or sum(unit.weight for unit in units) > _WORTH_PROCESSES
        jobs = min(self.workers if worth else 1, len(units))
        if jobs > 1:
            return await self._run_elsewhere(units, progress, jobs)
        results = []
        for done, unit in enumerate(units):
            with _scratch(self.config.directory) as directory:
                results.append(await unit.check(Workspace(self.store, self.effects, directory)))
            progress(done + 1, len(units))
        return results

    async def _run_elsewhere(
        self, units: Sequence[Unit], progress: Progress, jobs: int
    ) -> list[UnitResult]:
        loop = asyncio.get_running_loop()
        # Forked, a process would inherit threads of ours that hold locks.
        pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"))

        async def check(number: int) -> UnitResult:
            return checked(await loop.run_in_executor(pool, work, units[number], self.config))

        try:
            results = await gather_bounded(range(len(units)), check, progress, jobs)
        finally:
            pool.shutdown(cancel_futures=True)
        return list(results.values())


@dataclass(frozen=True, slots=True)
class SparkEngine:
    """A batch job of one task per unit."""

    session: "SparkSession"
    effects: Effects
    config: WorkerConfig

    name: ClassVar[str] = "spark"

    @property
    def workers(self) -> int:
        """The cores of its executors."""
        return self.session.sparkContext.defaultParallelism

    async def run(self, units: Sequence[Unit], progress: Progress) -> list[UnitResult]:
        """Check all units; raises the first error of any, RestoreError when the job fails."""
        if not units:
            return []

        def check() -> list[UnitResult | TidelogError]:
            tasks = self.session.sparkContext.parallelize(units, len(units))
            return list(tasks.map(partial(work, config=self.config)).collect())

        found = await SparkJobs(self.session, self.effects, "tidelog verify").run(check, progress)
        progress(len(units), len(units))
        return list(map(checked, found))
