"""One restore of a stored job: from the start of the runner until the first record is handled.

Invariants: nothing of the job has run in this process before, so the first restore pays for what
every restart pays; phases are those of the job's own status.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidelog.effects import Effects
from tidelog.runtime.graph import Job
from tidelog.runtime.runner import JobRunner
from tidelog.runtime.status.checkpoints import RestorePhases
from tidelog.runtime.status.observe import status_of
from tidelog_bench.embedded.jobs import Read
from tidelog_bench.embedded.meter import CLOCK, Mark, rss_mb
from tidelog_bench.embedded.run import RunSpec, scratch
from tidelog_bench.embedded.stores import open_store
from tidelog_bench.store.modelled import Totals

Build = Callable[[Read], Job]


@dataclass(frozen=True)
class Restored:
    """What a restore took; times in seconds."""

    takeover_s: float
    """The slot log read and taken over, until the first byte of state is asked for."""
    phases: RestorePhases
    """Seconds of each phase; phases overlap."""
    restore_s: float
    """All phases."""
    start_s: float
    """From then until all tasks run."""
    first_record_s: float
    """From the start of the runner until a record has reached the keyed state."""
    cpu_s: float
    changes: int
    """Replayed from the log."""
    state_bytes: int
    """Table files and log that the checkpoint names."""
    table_bytes: int
    """The table files among them."""
    downloaded_bytes: int
    """From the store; what local copies gave is not in it."""
    requests: int
    """Requests until all tasks run."""
    rss_mb: float

    @property
    def running_s(self) -> float:
        """From the start of the runner until all tasks run."""
        return self.takeover_s + self.restore_s + self.start_s

    @property
    def figures(self) -> dict[str, float]:
        """What every experiment with restores records of it."""
        return {
            "running_s": self.running_s,
            "cpu_s": self.cpu_s,
            "downloaded_mb": self.downloaded_bytes / 1e6,
            "state_mb": self.state_bytes / 1e6,
            "table_mb": self.table_bytes / 1e6,
            "requests": self.requests,
            "rss_mb": self.rss_mb,
        }


def restore(
    spec: RunSpec, build: Build, first: Sequence[Any], store: Path, room: Path | None = None
) -> Restored:
    """Restore what lies in `store` and handle the records `first`; the job is then stopped."""
    with scratch(room) as directory:
        return asyncio.run(_restore(spec, build, first, store, directory))


async def _restore(
    spec: RunSpec, build: Build, first: Sequence[Any], store: Path, directory: Path
) -> Restored:
    effects = Effects()
    opened = open_store(store, spec.link, effects)
    runner = JobRunner(build(_once(first)), opened, spec.config(directory), effects)
    up: list[tuple[Mark, Totals]] = []
    before = Mark.now(0)
    running = asyncio.ensure_future(
        runner.run(lambda: up.append((Mark.now(0), opened.model.totals())))
    )
    try:
        while not _handled(runner):
            if running.done():
                running.result()
            await CLOCK.sleep(0.001)
        after = Mark.now(len(first))
        return _read(runner, before, up[0], after)
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        effects.offload.close()


def _once(first: Sequence[Any]) -> Read:
    """A source that has these records and then none, wherever it goes on."""
    left = [list(first)]

    def read(position: int) -> list[Any]:
        return left.pop() if left else []

    return read


def _handled(runner: JobRunner) -> bool:
    if not runner.running or runner.incarnation is None:
        return False
    operators = status_of(runner).operators
    return any(operator.records_in for operator in operators if not operator.source)


def _read(runner: JobRunner, before: Mark, up: tuple[Mark, Totals], after: Mark) -> Restored:
    assert runner.incarnation is not None
    progress = runner.incarnation.deployment.states.progress
    checkpoint = runner.incarnation.plan.checkpoint
    assert progress.seconds is not None and checkpoint is not None
    status = status_of(runner).restore
    assert status is not None and status.phases is not None
    started, asked = up
    states = [state for _, state in checkpoint.subtasks()]
    return Restored(
        takeover_s=progress.started - before.wall,
        phases=status.phases,
        restore_s=progress.seconds,
        start_s=started.wall - progress.started - progress.seconds,
        first_record_s=after.wall - before.wall,
        cpu_s=after.cpu - before.cpu,
        changes=status.changes,
        state_bytes=status.total_bytes,
        table_bytes=sum(s.materialization.table_bytes for s in states if s.materialization),
        downloaded_bytes=asked.downloaded_bytes,
        requests=sum(asked.requests.values()),
        rss_mb=rss_mb(),
    )
