"""A checkpoint of known shape, all of the state and log after it, and a restore of it.

Invariants: what the log after the table holds is as many records as were asked for, and nothing of
those that made the state; nothing of the job has run in the process that restores it, so the first
restore pays for what every restart pays; phases are those of the job's own status.
"""

import asyncio
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final, Literal

from tidelog.catalog.inventory import read_slots
from tidelog.effects import Effects
from tidelog.errors import ConfigError
from tidelog.runtime.graph import Job
from tidelog.runtime.runner import JobRunner
from tidelog.runtime.status.observe import status_of
from tidelog.state.recovery.progress import RestoreProgress
from tidelog.storage.local import LocalStore
from tidelog_bench.embedded.jobs import ListSource, Read, sliding_window, word_count
from tidelog_bench.embedded.meter import Mark, rss_mb
from tidelog_bench.embedded.run import RunSpec, meanwhile, run_trial, spec_of, until
from tidelog_bench.embedded.words import BUFFER
from tidelog_bench.experiment import Trial
from tidelog_bench.store import Traffic

_NEVER_S: Final = 1e6
_HARDLY_ANY: Final = 0.01
"""Records a second."""
_MATERIALIZE_S: Final = 0.4
_IDLE_S: Final = 0.6
"""The first idle run; the next ones are twice as long each."""
_IDLE_RUNS: Final = 9
_IDLE_CHECKPOINT_S: Final = 0.4
"""Tables give way to checkpoints, so these must not follow each other at once."""
_OFTEN_S: Final = 0.1
"""Between checkpoints: each run ends with one, so it ends soon."""
RESCALED: Final = "to "
"""A variant that begins so restores with as many subtasks as it says then."""


@dataclass(frozen=True, slots=True)
class State:
    """What the settings of a trial say of the restored state, and of the job that has it."""

    job: Literal["wordcount", "window"]
    log_records: int
    keys: int = 1_000
    slides: int = 1
    window_records: int = 0

    @property
    def words(self) -> bool:
        """Words are counted; else windows of them are kept."""
        return self.job == "wordcount"

    def build(self, read: Read) -> Job:
        if self.words:
            return word_count(ListSource(read))
        # There is a record a millisecond.
        slide_ms = self.window_records // self.slides
        return sliding_window(read, slides=self.slides, slide_ms=slide_ms)

    def spec(self, trial: Trial) -> RunSpec:
        """The run that makes the state, and is restored in the variant of the trial."""
        changelog, _, copies = trial.variant.partition("-")
        return spec_of(
            trial,
            keys=self.keys,
            draws=max(10_000, min(self.log_records, 4_000_000)),
            changelog=changelog != "off",
            warm_s=0.0,
            materialize_s=_NEVER_S,
            replay_s=_NEVER_S,
            copies=str(trial.directory / "copies") if copies else None,
            filled=self.words,
        )


def fill(trial: Trial) -> None:
    """Leave a checkpoint in the trial's directory: full state, and a log of `log_records` after it.

    Runs of the job, each resuming from the one before: one that makes the state, some that idle
    until its table is materialized, one that never materializes.
    """
    state, store = trial.read(State), trial.directory / "store"
    near = replace(state.spec(trial), link=None, checkpoint_s=_OFTEN_S)

    def run(spec: RunSpec) -> None:
        run_trial(spec, lambda stages: state.build(stages.read), trial.directory, store=store)

    of_state = _whole_buffers(1 if state.words else state.window_records * 3 // 2)
    run(replace(near, records=of_state))
    idle = replace(
        near, materialize_s=_MATERIALIZE_S, checkpoint_s=_IDLE_CHECKPOINT_S, rate=_HARDLY_ANY
    )
    for attempt in range(_IDLE_RUNS):
        if asyncio.run(log_after_table(store)) == 0:
            break
        run(replace(idle, seconds=_IDLE_S * 2**attempt))
    else:
        raise ConfigError(
            "restore",
            expected=f"the table uploaded while the job idled, {_IDLE_RUNS - 1} times",
            found="log that no table covers",
            action="run it when the disk is less busy, or with fewer keys",
        )
    run(replace(near, records=of_state + _whole_buffers(state.log_records)))


async def log_after_table(store: Path) -> int:
    """Changes that a restore of the newest checkpoint would replay."""
    effects = Effects()
    try:
        slots = await read_slots(LocalStore(str(store), effects))
    finally:
        effects.offload.close()
    newest = list(slots.checkpoints.values())[-1]
    states = [state for _, state in newest.subtasks()]
    return RestoreProgress.of(effects.clock, states).total_changes


def _whole_buffers(records: int) -> int:
    return -(-records // BUFFER) * BUFFER


def restore(trial: Trial) -> dict[str, float]:
    """Restore what `fill` has left, and handle a record; the job is then stopped."""
    state = trial.read(State)
    spec = state.spec(trial)
    if trial.variant.startswith(RESCALED):
        spec = replace(spec, parallelism=int(trial.variant.removeprefix(RESCALED)))
    return asyncio.run(_restore(spec, state, trial.directory))


async def _restore(spec: RunSpec, state: State, room: Path) -> dict[str, float]:
    effects, left = Effects(), [["first"]]

    def read(position: int) -> list[str]:
        """This word and then none, wherever the source goes on."""
        return left.pop() if left else []

    store = spec.store(LocalStore(str(room / "store"), effects), effects)
    runner = JobRunner(state.build(read), store, spec.config(room / "work"), effects)
    up: list[tuple[Mark, Traffic]] = []
    before = Mark.now(0)
    try:
        async with meanwhile(runner.run(lambda: up.append((Mark.now(0), store.totals())))):
            await until(lambda: _handled(runner), look_s=0.001)
            return _figures(runner, before, *up[0], Mark.now(0))
    finally:
        effects.offload.close()


def _handled(runner: JobRunner) -> bool:
    if not runner.running or runner.incarnation is None:
        return False
    operators = status_of(runner).operators
    return any(operator.records_in for operator in operators if not operator.source)


def _figures(
    runner: JobRunner, before: Mark, up: Mark, asked: Traffic, after: Mark
) -> dict[str, float]:
    assert runner.incarnation is not None
    progress = runner.incarnation.states.progress
    checkpoint = runner.incarnation.plan.checkpoint
    status = status_of(runner).restore
    assert progress.seconds is not None and checkpoint is not None
    assert status is not None and status.phases is not None
    states = [state for _, state in checkpoint.subtasks()]
    tables = sum(s.materialization.table_bytes for s in states if s.materialization)
    replay_s = status.phases.replay_s
    replay = {"changes_per_s": status.changes / replay_s} if status.changes and replay_s else {}
    return replay | {
        "first_record_s": after.wall - before.wall,
        "takeover_s": progress.started - before.wall,
        **asdict(status.phases),
        "restore_s": progress.seconds,
        "start_s": up.wall - progress.started - progress.seconds,
        "running_s": up.wall - before.wall,
        "cpu_s": after.cpu - before.cpu,
        "replayed_changes": status.changes,
        "downloaded_mb": asked.downloaded_bytes / 1e6,
        "state_mb": status.total_bytes / 1e6,
        "table_mb": tables / 1e6,
        "requests": asked.all_requests,
        "rss_mb": rss_mb(),
    }
