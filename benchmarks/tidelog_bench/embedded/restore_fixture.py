"""A checkpoint of known shape, left behind for a restore: all of the state, and log after it.

Invariant: what the log after the table holds is as many records as were asked for, and nothing of
those that made the state.
"""

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

from tidelog.catalog.inventory import read_slots
from tidelog.effects import Effects
from tidelog.errors import ConfigError
from tidelog.runtime.graph import Job
from tidelog.state.restore.progress import RestoreProgress
from tidelog.storage.local import LocalStore
from tidelog_bench.embedded.jobs import Read, sliding_window, timed, word_count
from tidelog_bench.embedded.run import RunSpec, measure, spec_of
from tidelog_bench.embedded.stages import BUFFER
from tidelog_bench.measurement import Trial

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
_WINDOW_KEYS: Final = 1_000


@dataclass(frozen=True, slots=True)
class State:
    """What the settings of a trial say of the restored state, and of the job that has it."""

    job: Literal["wordcount", "window"]
    log_records: int
    keys: int = _WINDOW_KEYS
    slides: int = 1
    window_records: int = 0

    @property
    def words(self) -> bool:
        """Words are counted; else windows of them are kept."""
        return self.job == "wordcount"

    def build(self, read: Read) -> Job:
        """The job whose restore is measured, over this source."""
        if self.words:
            return word_count(read)
        # `timed` counts a record a millisecond.
        slide_ms = self.window_records // self.slides
        return sliding_window(read, slides=self.slides, slide_ms=slide_ms)


def fill(trial: Trial) -> None:
    """Leave a checkpoint in the trial's directory: full state, and a log of `log_records` after it.

    Runs of the job, each resuming from the one before: one that makes the state, some that idle
    until its table is materialized, one that never materializes.
    """
    state, store, room = trial.read(State), trial.directory / "store", trial.directory
    never = replace(restored_spec(trial), link=None, replay_s=_NEVER_S, materialize_s=_NEVER_S)
    near = replace(never, checkpoint_s=_OFTEN_S)

    def run(each: RunSpec) -> None:
        measure(
            each,
            lambda stages: state.build(stages.read if state.words else timed(stages.read)),
            store=store,
            room=room,
        )

    of_state = _whole_buffers(1 if state.words else state.window_records * 3 // 2)
    run(replace(near, records=of_state))
    idle = replace(
        near,
        materialize_s=_MATERIALIZE_S,
        checkpoint_s=_IDLE_CHECKPOINT_S,
        rate=_HARDLY_ANY,
    )
    for attempt in range(_IDLE_RUNS):
        if asyncio.run(log_behind(store)) == 0:
            break
        run(replace(idle, seconds=_IDLE_S * 2**attempt))
    else:
        raise ConfigError(
            "restore-phases",
            expected=f"the table uploaded while the job idled, {_IDLE_RUNS - 1} times",
            found="log that no table covers",
            action="run it when the disk is less busy, or with fewer keys",
        )
    run(replace(near, records=of_state + _whole_buffers(state.log_records)))


async def log_behind(store: Path) -> int:
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


def restored_spec(trial: Trial) -> RunSpec:
    """The run of a variant, behind the store model."""
    state = trial.read(State)
    variant, _, copies = trial.variant.partition("-")
    return spec_of(
        trial,
        keys=state.keys,
        draws=max(10_000, min(state.log_records, 4_000_000)),
        changelog=variant == "on",
        warm_s=0.0,
        copies=str(trial.directory / "copies") if copies else None,
        filled=state.words,
    )
