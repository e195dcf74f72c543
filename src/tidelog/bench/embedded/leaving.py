"""A checkpoint of known shape, left behind for a restore: all of the state, and log behind it.

Invariant: what the log behind the table holds is as many records as were asked for, and nothing of
those that made the state.
"""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from tidelog.bench.embedded.jobs import Read, sliding_window, timed, word_count
from tidelog.bench.embedded.run import RunSpec, measure
from tidelog.bench.embedded.stages import BUFFER
from tidelog.bench.embedded.workload import Workload
from tidelog.bench.measurement import Trial
from tidelog.bench.store.manners import Manners
from tidelog.checkpoint.inventory import read_slots
from tidelog.effects import Effects
from tidelog.errors import ConfigError
from tidelog.runtime.graph import Job
from tidelog.state.progress import RestoreProgress
from tidelog.storage.local import LocalStore

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


def fill(trial: Trial) -> None:
    """Leave a checkpoint in the trial's directory: full state, and log of `log_records` behind it.

    Runs of the job, each resuming from the one before: one that makes the state, some that idle
    until its table is materialized, one that never materializes.
    """
    settings: Any = trial.settings
    spec, store, room = spec_of(trial), trial.directory / "store", trial.directory
    near = replace(
        spec, link=None, replay_s=_NEVER_S, materialize_s=_NEVER_S, checkpoint_s=_OFTEN_S
    )

    def run(each: RunSpec) -> None:
        measure(
            each, lambda stages: job_of(trial, _timed(trial, stages.read)), store=store, room=room
        )

    windowed = settings["window_records"] * 3 // 2 if settings["job"] == "window" else 1
    of_state = _whole_buffers(windowed)
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
    run(replace(near, records=of_state + _whole_buffers(settings["log_records"])))


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


def spec_of(trial: Trial) -> RunSpec:
    """The run of a variant, behind the store model."""
    settings: Any = trial.settings
    words = settings["job"] == "wordcount"
    variant, _, copies = trial.variant.partition("-")
    return RunSpec(
        Workload(
            settings["keys"] if words else _WINDOW_KEYS,
            settings.get("key_bytes", 16),
            draws=max(10_000, min(settings["log_records"], 4_000_000)),
        ),
        changelog=variant == "on",
        checkpoint_s=settings["checkpoint_s"],
        warm_s=0.0,
        link=Manners(settings["latency_ms"], settings["mb_per_s"], trial.seed),
        copies=str(trial.directory / "copies") if copies else None,
        filled=words,
        seed=trial.seed,
    )


def _timed(trial: Trial, read: Read) -> Read:
    return read if trial.settings["job"] == "wordcount" else timed(read)


def job_of(trial: Trial, read: Read) -> Job:
    """Its job."""
    settings: Any = trial.settings
    if settings["job"] == "wordcount":
        return word_count(read)
    # `timed` counts a record a millisecond.
    slides = settings["slides"]
    return sliding_window(read, slides=slides, slide_ms=settings["window_records"] // slides)
