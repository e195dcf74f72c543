"""The word count, a session window and an interval join on tidelog's embedded runtime, on a local
directory.

Invariants: the library's defaults but for the interval of checkpoints; garbage is collected as in
`tidelog run`; objects are synced before they have a name, as `LocalStore` does it.
"""

import asyncio
from collections.abc import Callable
from contextlib import closing

from tidelog import Session
from tidelog.__main__ import collect_rarely
from tidelog.checkpoint.schedule import Schedule
from tidelog.connectors.files.lines import JsonLines
from tidelog.connectors.files.sink import Files
from tidelog.connectors.program import Callback
from tidelog.effects import Effects
from tidelog.runtime.config import JobConfig
from tidelog.runtime.graph import Job, KeyedStream
from tidelog.runtime.runner import JobRunner
from tidelog.runtime.sink import Sink
from tidelog.storage import object_names
from tidelog.storage.local import LocalStore
from tidelog_bench.embedded.jobs import ListSource, word_count
from tidelog_bench.embedded.meter import Mark, between, tree_mark
from tidelog_bench.embedded.run import RunSpec, run_trial
from tidelog_bench.peers.task import DELAY_MS, EventTask, ProgramTask, Task, figures


def run(task: Task) -> dict[str, float]:
    """Count in this process; then read the counts from a job that the store alone restores."""
    collect_rarely()
    spec = RunSpec(
        task.keys,
        task.draws,
        task.key_bytes,
        checkpoint_s=task.checkpoint_s,
        warm_s=task.warm_s,
        seconds=task.seconds,
        seed=task.seed,
    )
    measured = run_trial(
        spec, lambda stages: word_count(ListSource(stages.read)), task.path, store=task.durable
    )
    start, end = (moment.mark for moment in measured.measured)
    written = measured.store.writes
    manifests = [w.ended for w in written if w.name.startswith(object_names.CHECKPOINTS)]
    found = task.figures(start, end, between(manifests, start, end))
    ended = ListSource(lambda position: None, endless=False)
    counts, _ = restored(task, lambda sink: word_count(ended, sink))
    task.check(counts, task.words(), end.records)
    return found


def restored(task: Task, build: Callable[[Sink], Job]) -> tuple[dict[str, int], JobRunner]:
    """What a job that the store alone restores emits, and its runner."""
    pairs: list[tuple[str, int]] = []
    runner = _run(task, build(Callback(pairs.append)))
    return dict(pairs), runner


def run_events(task: EventTask) -> dict[str, float]:
    """Run the job in this process, to the end of its files."""
    collect_rarely()
    drawn, begun = task.write(), list[Mark]()
    _run(task, _events(task), lambda: begun.append(tree_mark(0)))
    return figures(task, drawn, begun[0], tree_mark(task.rows))


def _run(task: ProgramTask, job: Job, on_start: Callable[[], None] | None = None) -> JobRunner:
    effects = Effects()
    config = JobConfig(work_dir=task.path / "work", checkpoint=Schedule(interval=task.checkpoint_s))
    runner = JobRunner(job, LocalStore(task.durable, effects), config, effects)
    with closing(effects.offload):
        asyncio.run(runner.run(on_start))
    return runner


def _events(task: EventTask) -> Job:
    job = Job("events")
    inputs = [_keyed(job, task, name) for name in task.sides]
    sink = Files(task.results, fields=task.fields)
    if task.job == "session":
        inputs[0].window(Session(task.within_ms)).sum(lambda row: row.value).sink(sink)
    else:
        pairs = inputs[0].join(inputs[1], (0, task.within_ms))
        pairs.map(
            lambda pair: (pair[0].key, pair[0].time, pair[0].value, pair[1].time, pair[1].value)
        ).sink(sink)
    return job


def _keyed(job: Job, task: EventTask, name: str) -> KeyedStream:
    rows = job.source(JsonLines(task.side(name).parent), name=name)
    return rows.event_time(lambda row: row.time, max_delay_ms=DELAY_MS).key_by(lambda row: row.key)
