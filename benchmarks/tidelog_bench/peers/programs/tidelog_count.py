"""The word count on tidelog's embedded runtime, changelog on, on a local directory.

Invariant: the library's defaults but for the interval of checkpoints; objects are synced before
they have a name, as `LocalStore` does it.
"""

import asyncio
from pathlib import Path

from tidelog.connectors.program import Callback
from tidelog.effects import Effects
from tidelog.runtime.config import JobConfig
from tidelog.runtime.runner import JobRunner
from tidelog.storage.local import LocalStore
from tidelog_bench.embedded.jobs import count_words, word_count
from tidelog_bench.embedded.run import RunSpec, run_trial
from tidelog_bench.embedded.words import Workload
from tidelog_bench.peers.task import Outcome, Task, check
from tidelog_bench.peers.usage import between, figures

NOTES = {
    "durable": "every change and the source's position, in segments and a manifest per checkpoint, "
    "as synced files in a local directory; the table is uploaded there, too",
    "not_done": "no network: the object store is a directory, as the places of the others are",
}


def run(task: Task) -> Outcome:
    """Count in this process; then read the counts from a job that the store alone restores."""
    spec = RunSpec(
        Workload(task.keys, task.key_bytes, task.skewed, task.draws),
        checkpoint_s=task.checkpoint_s,
        warm_s=task.warm_s,
        seconds=task.seconds,
        seed=task.seed,
    )
    measured = run_trial(spec, count_words, task.path, store=task.durable)
    begun, ended = measured.measured
    start, end = begun.mark, ended.mark
    manifests = [w.ended for w in measured.store.writes if w.name.startswith("checkpoints/")]
    found = figures(start, end, between(manifests, start, end), task.durable)
    counts = asyncio.run(_restored(task.durable, task.path / "work"))
    check("tidelog", counts, task.words(), end.records)
    return Outcome(found, NOTES)


async def _restored(store: Path, work_dir: Path) -> dict[str, int]:
    effects = Effects()
    pairs: list[tuple[str, int]] = []
    job = word_count(lambda position: None, Callback(pairs.append), endless=False)
    config = JobConfig(work_dir=work_dir)
    try:
        await JobRunner(job, LocalStore(store, effects), config, effects).run()
    finally:
        effects.offload.close()
    return dict(pairs)
