"""A session window and an interval join on tidelog's embedded runtime, with its defaults."""

import asyncio

from tidelog.checkpoint.schedule import Schedule
from tidelog.connectors.files.lines import JsonLines
from tidelog.connectors.files.sink import Files
from tidelog.effects import Effects
from tidelog.runtime.config import JobConfig
from tidelog.runtime.graph import Job, KeyedStream
from tidelog.runtime.runner import JobRunner
from tidelog.storage.local import LocalStore
from tidelog_bench.embedded.meter import Mark
from tidelog_bench.peers.events import DELAY_MS, EventTask, figures
from tidelog_bench.peers.usage import tree_mark

TASK = EventTask


def run(task: EventTask) -> dict[str, float]:
    """Run the job in this process, to the end of its files."""
    drawn = task.write()
    start, end = asyncio.run(_measured(task))
    return figures(task, drawn, start, end)


async def _measured(task: EventTask) -> tuple[Mark, Mark]:
    effects, begun = Effects(), list[Mark]()
    config = JobConfig(work_dir=task.path / "work", checkpoint=Schedule(interval=task.checkpoint_s))
    runner = JobRunner(_job(task), LocalStore(task.durable, effects), config, effects)
    try:
        await runner.run(lambda: begun.append(tree_mark(0)))
        return begun[0], tree_mark(task.rows)
    finally:
        effects.offload.close()


def _job(task: EventTask) -> Job:
    from tidelog import Session  # noqa: PLC0415  # as a user's program imports it

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
