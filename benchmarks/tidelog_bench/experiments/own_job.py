"""A job of the user's own, on the real runtime at the model of a store.

Invariants: what is measured is the job as `tidelog run` would run it, with the settings that the
session names; the project's targets and recorded figures have nothing to do with it.
"""

import asyncio
import hashlib
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

from tidelog.cli.run.definition import load_job
from tidelog.effects import Effects
from tidelog.errors import ConfigError
from tidelog.options.units import parse_count
from tidelog.runtime.config import JobArguments, JobConfig
from tidelog.runtime.runner import JobRunner
from tidelog.runtime.status.distribution import percentile
from tidelog.settings import load_config
from tidelog.storage.memory import MemoryStore
from tidelog_bench.embedded.meter import CLOCK, Mark, rates, rss_mb
from tidelog_bench.experiment import Cell, Experiment, Figure, Reading, Setting, Trial
from tidelog_bench.store import LatencyProfile, ModelledStore, Traffic, daily

NAME: Final = "job"
_OF_RUN: Final[dict[str, float]] = {
    "latency_ms": 30.0,
    "mb_per_s": 100.0,
    "warm_s": 5.0,
    "seconds": 30.0,
}
"""The model of the store, and how long a trial is."""
_ARGUMENTS: Final = {field.name for field in fields(JobArguments)}
_DAY_S: Final = 86_400
_LOOK_S: Final = 0.05


def settings_of(job: str, chosen: Mapping[str, str]) -> dict[str, Setting]:
    """The settings of a cell; raises ConfigError for one that does not exist or has no such value,
    and what importing the job raises.
    """
    settings: dict[str, Setting] = {"job": job, "code": _code(job), **_OF_RUN}
    for name, text in chosen.items():
        if name in _OF_RUN:
            number = parse_count(text)
            if number is None:
                raise ConfigError(
                    f"--set {name}", expected="a number", found=text, action="correct it"
                )
            settings[name] = number
        else:
            settings[name] = text
    config = _config(settings)
    if config.workers > 1:
        raise ConfigError(
            "--set workers",
            expected="1: a trial is one process",
            found=str(config.workers),
            action="measure with parallelism=N, or run the job itself with --workers",
        )
    load_job(job, _arguments(settings))
    return settings


def _code(job: str) -> str:
    """A digest of the job's file, so that figures of two versions are told apart."""
    path = Path(job.rpartition(":")[0])
    return hashlib.blake2b(path.read_bytes(), digest_size=4).hexdigest() if path.is_file() else ""


def _arguments(settings: Mapping[str, Setting]) -> JobArguments:
    values: dict[str, Any] = {name: settings[name] for name in _ARGUMENTS & settings.keys()}
    if "follow" in values:
        values["follow"] = values["follow"] in (True, "true", "1")
    return JobArguments(**values)


def _config(settings: Mapping[str, Setting]) -> JobConfig:
    other = {"job", "code", *_OF_RUN, *_ARGUMENTS}
    return load_config(options={name: of for name, of in settings.items() if name not in other})


def experiment(settings: Mapping[str, Setting]) -> Experiment:
    """The experiment of one cell that measures a job with such settings."""
    seconds = sum(float(settings[name] or 0) for name in ("warm_s", "seconds"))
    return replace(_EXPERIMENT, cells=lambda _: [Cell(settings, (NAME,), seconds)])


@dataclass
class _Moment:
    mark: Mark
    traffic: Traffic
    checkpoints: int


def measure(trial: Trial) -> Reading:
    settings = trial.settings
    profile = LatencyProfile(
        latency_ms=float(settings["latency_ms"] or 0), mb_per_s=float(settings["mb_per_s"] or 0)
    )
    effects = Effects()
    with closing(effects.offload):
        store = ModelledStore(MemoryStore(), effects.clock, profile, own_loop=True)
        config = replace(_config(settings), work_dir=trial.directory)
        job = load_job(str(settings["job"]), _arguments(settings))
        runner = JobRunner(job, store, config, effects)
        return Reading(asyncio.run(_measured(runner, store, settings)))


async def _measured(
    runner: JobRunner, store: ModelledStore, settings: Mapping[str, Setting]
) -> dict[str, float]:
    started = asyncio.Event()
    running = asyncio.ensure_future(runner.run(started.set))
    running.add_done_callback(lambda _: started.set())
    try:
        await started.wait()
        await _for(float(settings["warm_s"] or 0), running)
        begun = _moment(runner, store)
        await _for(float(settings["seconds"] or 0), running)
        ended = _moment(runner, store)
        if running.done():
            running.result()
        return _figures(runner, begun, ended)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await store.close()


async def _for(seconds: float, running: "asyncio.Future[Any]") -> None:
    """Wait so long, or until the job has ended."""
    until = CLOCK.monotonic() + seconds
    while not running.done() and CLOCK.monotonic() < until:
        await CLOCK.sleep(_LOOK_S)


def _moment(runner: JobRunner, store: ModelledStore) -> _Moment:
    assert runner.incarnation is not None
    driver = runner.incarnation.driver
    read = sum(task.records_in for task in runner.incarnation.tasks if task.is_source)
    return _Moment(Mark.now(read), store.totals(), driver.metrics.completed)


def _figures(runner: JobRunner, begun: _Moment, ended: _Moment) -> dict[str, float]:
    assert runner.incarnation is not None
    metrics, traffic = runner.incarnation.driver.metrics, ended.traffic.since(begun.traffic)
    durations = list(metrics.durations_s)[-max(0, ended.checkpoints - begun.checkpoints) :]
    a_day = _DAY_S / max(traffic.seconds, 1e-6)
    found = {
        **rates(begun.mark, ended.mark),
        "checkpoints": ended.checkpoints - begun.checkpoints,
        "checkpoints_failed": metrics.failed,
        "puts_per_day": round(traffic.requests["put"] * a_day),
        "lists_per_day": round(traffic.requests["list"] * a_day),
        "uploaded_mb_per_s": round(traffic.uploaded_bytes / max(traffic.seconds, 1e-6) / 1e6, 4),
        "stored_mb": round(traffic.stored_bytes / 1e6, 3),
        "dollars_per_day": round(daily(traffic).total, 4),
        "rss_mb": round(rss_mb()),
    }
    if ended.checkpoints > begun.checkpoints:
        found["checkpoint_p50_ms"] = round(percentile(durations, 0.5) * 1e3, 1)
        found["checkpoint_p99_ms"] = round(percentile(durations, 0.99) * 1e3, 1)
    return found


_EXPERIMENT: Final = Experiment(
    name=NAME,
    title="A job of your own",
    question="What does the job do and cost, with these settings, at a store of this latency?",
    group="embedded",
    cells=lambda _: [],
    measure=measure,
    figures=(
        Figure("records_per_s", "records a second", "1/s", "higher"),
        Figure("cpu_us_per_record", "CPU per record", "us"),
        Figure("checkpoint_p50_ms", "checkpoint, median", "ms"),
        Figure("checkpoint_p99_ms", "checkpoint, p99", "ms"),
        Figure("puts_per_day", "PUT", "a day"),
        Figure("lists_per_day", "LIST", "a day"),
        Figure("uploaded_mb_per_s", "uploaded", "MB/s"),
        Figure("stored_mb", "stored on average", "MB"),
        Figure("dollars_per_day", "bill", "$ a day"),
        Figure("checkpoints", "completed checkpoints", "", "higher"),
        Figure("checkpoints_failed", "failed checkpoints", ""),
        Figure("cores_used", "processors used", "", "neither"),
        Figure("rss_mb", "memory of the process", "MB"),
    ),
)
