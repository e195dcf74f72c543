"""The word count on tidelog's embedded runtime, changelog on, on a local directory.

Invariant: the library's defaults but for the interval of checkpoints; objects are synced before
they have a name, as `LocalStore` does it.
"""

import asyncio
from collections.abc import Callable
from contextlib import closing

from tidelog.connectors.program import Callback
from tidelog.effects import Effects
from tidelog.runtime.config import JobConfig
from tidelog.runtime.graph import Job
from tidelog.runtime.runner import JobRunner
from tidelog.runtime.sink import Sink
from tidelog.storage.local import LocalStore
from tidelog_bench.embedded.jobs import word_count
from tidelog_bench.embedded.run import RunSpec, run_trial
from tidelog_bench.embedded.words import Workload
from tidelog_bench.peers.task import Task, check
from tidelog_bench.peers.usage import between, figures


def run(task: Task) -> dict[str, float]:
    """Count in this process; then read the counts from a job that the store alone restores."""
    spec = RunSpec(
        Workload(task.keys, task.key_bytes, task.draws),
        checkpoint_s=task.checkpoint_s,
        warm_s=task.warm_s,
        seconds=task.seconds,
        seed=task.seed,
    )
    measured = run_trial(
        spec, lambda stages: word_count(stages.read), task.path, store=task.durable
    )
    begun, ended = measured.measured
    start, end = begun.mark, ended.mark
    manifests = [w.ended for w in measured.store.writes if w.name.startswith("checkpoints/")]
    found = figures(start, end, between(manifests, start, end), task.durable)
    counts, _ = restored(task, lambda sink: word_count(lambda position: None, sink, endless=False))
    check("tidelog", counts, task.words(), end.records)
    return found


def restored(task: Task, build: Callable[[Sink], Job]) -> tuple[dict[str, int], JobRunner]:
    """What a job that the store alone restores emits, and its runner."""
    effects = Effects()
    pairs: list[tuple[str, int]] = []
    store, config = LocalStore(task.durable, effects), JobConfig(work_dir=task.path / "work")
    runner = JobRunner(build(Callback(pairs.append)), store, config, effects)
    with closing(effects.offload):
        asyncio.run(runner.run())
    return dict(pairs), runner
