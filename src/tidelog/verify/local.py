"""Units checked on this machine: in this process, or in several.

Invariants: the first error ends the run; no process outlives it.
"""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from os import cpu_count
from typing import ClassVar, Final

from tidelog.checkpoint.bounded import Progress, gather_bounded
from tidelog.effects import Effects
from tidelog.errors import TidelogError
from tidelog.storage.port import ObjectStore
from tidelog.verify.bench import Bench, Unit, UnitResult
from tidelog.verify.worker import Workplace, scratch, work

_WORTH_PROCESSES: Final = 64 << 20
"""Below so many bytes, starting processes takes longer than checking here."""


@dataclass(frozen=True, slots=True)
class LocalEngine:
    """Plain Python; `jobs` is the number of processes, None: as many as the work is worth."""

    store: ObjectStore
    effects: Effects
    place: Workplace
    jobs: int | None = None

    name: ClassVar[str] = "local"

    async def run(self, units: Sequence[Unit], progress: Progress) -> list[UnitResult]:
        """Check all units; raises the first error of any."""
        jobs = min(self.jobs or _jobs_for(units), len(units))
        if jobs > 1:
            return await self._run_elsewhere(units, progress, jobs)
        results = []
        for done, unit in enumerate(units):
            with scratch(self.place.directory) as directory:
                results.append(await unit.check(Bench(self.store, self.effects, directory)))
            progress(done + 1, len(units))
        return results

    async def _run_elsewhere(
        self, units: Sequence[Unit], progress: Progress, jobs: int
    ) -> list[UnitResult]:
        loop = asyncio.get_running_loop()
        # Forked, a process would inherit threads of ours that hold locks.
        pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"))

        async def check(number: int) -> UnitResult:
            result = await loop.run_in_executor(pool, work, units[number], self.place)
            if isinstance(result, TidelogError):
                raise result
            return result

        try:
            results = await gather_bounded(range(len(units)), check, progress, jobs)
        finally:
            pool.shutdown(cancel_futures=True)
        return list(results.values())


def _jobs_for(units: Sequence[Unit]) -> int:
    return (cpu_count() or 1) if sum(unit.weight for unit in units) > _WORTH_PROCESSES else 1
