"""Spark for the commands of tidelog: a session, and jobs that an event loop waits for.

Invariant: a session that was found is left as it was; one that was started is stopped in the end.
"""

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from tidelog.concurrency import Progress
from tidelog.effects import Effects
from tidelog.errors import ConfigError, RestoreError
from tidelog.spark.failures import translated
from tidelog.spark.plugin.settings import refuse_connect, use_this_python
from tidelog.spark.plugin.toolchain import require_pyspark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")

LOCAL: Final = "local[*]"
_QUIET: Final = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
_POLL_S: Final = 0.3
_WITHOUT: Final = "; or do without Spark, with --engine local"


@contextmanager
def session(
    name: str, master: str | None, conf: Mapping[str, str], otherwise: str = _WITHOUT
) -> Iterator["SparkSession"]:
    """The active session; else a new one of this name on `master`, None: on what Spark's own
    settings say, or on this machine. Raises ConfigError when Spark or Java is missing or does not
    start, and for a client of Spark Connect; `otherwise` is what else may be done.
    """
    try:
        require_pyspark()
        refuse_connect(conf, "remove that")
    except ConfigError as error:
        raise ConfigError(
            error.what,
            expected=error.expected,
            found=error.found,
            action=f"{error.action}{otherwise}",
        ) from error
    from pyspark.sql import SparkSession  # noqa: PLC0415

    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    builder = SparkSession.builder.appName(name)
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ  # by spark-submit, which knows the master
    if master is not None or not submitted:
        builder = builder.master(master or LOCAL)
    use_this_python({"spark.master": master or LOCAL, **conf})
    for key, value in {**_QUIET, **conf}.items():
        builder = builder.config(key, value)
    with translated(
        ConfigError,
        f"the Spark session of `{name}`",
        expected="Spark to start on this master, with these settings and this Java",
        action="see what Spark has written above; correct --master, --conf or JAVA_HOME"
        f"{otherwise}",
    ):
        started = builder.getOrCreate()
    started.sparkContext.setLogLevel("ERROR")
    try:
        yield started
    finally:
        started.stop()


@dataclass(frozen=True, slots=True)
class SparkJobs:
    """Runs jobs in threads; `command` is the one they belong to, such as `tidelog verify`."""

    session: "SparkSession"
    effects: Effects
    command: str

    async def run(self, job: Callable[[], T], progress: Progress) -> T:
        """The result of a job; `progress` counts its tasks. Raises RestoreError when Spark fails.

        A job that is cancelled is cancelled in Spark, too.
        """
        group = f"{self.command} {self.effects.token()}"
        context = self.session.sparkContext

        def work() -> T:
            context.setJobGroup(group, self.command, interruptOnCancel=True)
            with translated(
                RestoreError,
                f"the Spark job of `{self.command}`",
                expected="every task to end; executors need this tidelog, its libraries and the "
                "store",
                action="read the executors' logs; with tidelog missing there, set PYSPARK_PYTHON "
                f"to a Python that has it{_WITHOUT}",
            ):
                return job()

        showing = asyncio.ensure_future(self._show(group, progress))
        try:
            return await self.effects.offload.run(work)
        except asyncio.CancelledError:
            context.cancelJobGroup(group)
            raise
        finally:
            showing.cancel()

    async def _show(self, group: str, progress: Progress) -> None:
        tracker = self.session.sparkContext.statusTracker()
        while True:
            done = total = 0
            for job in filter(None, map(tracker.getJobInfo, tracker.getJobIdsForGroup(group))):
                for stage in filter(None, map(tracker.getStageInfo, job.stageIds)):
                    done += stage.numCompletedTasks
                    total += stage.numTasks
            progress(done, total)
            await self.effects.clock.sleep(_POLL_S)
