"""Units checked by Spark: one task each, in executors that open the store themselves.

Invariants: what travels is small, units there and results back; a task that Spark runs twice
counts once; the first error of a unit is raised here as it was there.
"""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

from tidelog.checkpoint.bounded import Progress
from tidelog.effects import Effects
from tidelog.errors import RestoreError, TidelogError
from tidelog.verify.bench import Unit, UnitResult
from tidelog.verify.worker import Workplace, work

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_LOOK_S: Final = 0.3
_SHOWN: Final = 400
_RAISED: Final = re.compile(r"^(\w+(?:\.\w+)*(?:Error|Exception)): (.*)$", re.MULTILINE)
"""The last line of a traceback in Python."""


@dataclass(frozen=True, slots=True)
class SparkEngine:
    """A batch job of one task per unit."""

    session: "SparkSession"
    effects: Effects
    place: Workplace

    name: ClassVar[str] = "spark"

    async def run(self, units: Sequence[Unit], progress: Progress) -> list[UnitResult]:
        """Check all units; raises the first error of any, RestoreError when the job fails."""
        if not units:
            return []
        group = f"tidelog verify {self.effects.token()}"
        showing = asyncio.ensure_future(self._show(group, len(units), progress))
        try:
            found = await self.effects.offload.run(self._collect, units, group)
        except asyncio.CancelledError:
            self.session.sparkContext.cancelJobGroup(group)
            raise
        finally:
            showing.cancel()
        progress(len(units), len(units))
        return list(map(_raised, found))

    def _collect(self, units: Sequence[Unit], group: str) -> list[UnitResult | TidelogError]:
        context = self.session.sparkContext
        context.setJobGroup(group, f"check {len(units)} units", interruptOnCancel=True)
        tasks = context.parallelize(units, len(units))
        try:
            return list(tasks.map(partial(work, place=self.place)).collect())
        except Exception as error:
            raise failed(error) from error

    async def _show(self, group: str, total: int, progress: Progress) -> None:
        while True:
            progress(_done(self.session.sparkContext, group), total)
            await self.effects.clock.sleep(_LOOK_S)


def _raised(result: UnitResult | TidelogError) -> UnitResult:
    if isinstance(result, TidelogError):
        raise result
    return result


def _done(context: "SparkContext", group: str) -> int:
    """How many tasks of a job are done."""
    tracker = context.statusTracker()
    jobs = map(tracker.getJobInfo, tracker.getJobIdsForGroup(group))
    stages = (tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds)
    return sum(stage.numCompletedTasks for stage in stages if stage)


def failed(error: Exception) -> TidelogError:
    """What to tell of a Spark job that failed; errors that are not Spark's stay as they are."""
    if type(error).__module__.partition(".")[0] not in {"pyspark", "py4j"}:
        raise error
    raised = [f"{kind}: {said}" for kind, said in _RAISED.findall(str(error))]
    told = raised[-1] if raised else str(error).strip().partition("\n")[0]
    return RestoreError(
        "the Spark job of the verification",
        expected="every task to end; executors need this tidelog, its libraries and the store",
        found=told[:_SHOWN],
        action="read the executors' logs; with tidelog missing there, set PYSPARK_PYTHON to a "
        "Python that has it; or verify on this machine with --engine local",
    )
