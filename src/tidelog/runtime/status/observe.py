"""Looks at a running job and says what it sees.

Invariant: a status is taken in the event loop of its runner, in one piece; looking changes nothing.
"""

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import fields, replace
from itertools import chain
from typing import Any, TypeVar

from tidelog.changelog.uploader import Uploader
from tidelog.ids import Slot
from tidelog.runtime.checkpoints.driver import CheckpointDriver
from tidelog.runtime.runner import JobRunner
from tidelog.runtime.status.checkpoints import (
    CheckpointsStatus,
    HydrationStatus,
    RestorePhases,
    RestoreStatus,
)
from tidelog.runtime.status.distribution import distribution, percentile
from tidelog.runtime.status.merged import column, merged
from tidelog.runtime.status.status import (
    JobStatus,
    MemoryStatus,
    OperatorStatus,
    Phase,
    TaskStatus,
    WorkerStatus,
)
from tidelog.runtime.status.storage import (
    MaterializationsStatus,
    RequestsStatus,
    StateStatus,
    StoreStatus,
    UploadsStatus,
)
from tidelog.runtime.subtasks.incarnation import Incarnation, LocalSubtasks
from tidelog.runtime.subtasks.start import JobStart
from tidelog.runtime.subtasks.state import Subtask, SubtaskStates
from tidelog.runtime.tasks.task import Task
from tidelog.runtime.tasks.watermarks import combined
from tidelog.storage.port import OperationMetrics, RequestMetrics

T = TypeVar("T")


def status_of(runner: JobRunner) -> JobStatus:
    """The runner's status now; call it in the runner's event loop."""
    incarnation, subtasks = runner.incarnation, runner.subtasks
    status = JobStatus(
        job=runner.job.name,
        phase="ending" if runner.ending else "starting",
        at_s=runner.effects.clock.monotonic(),
        generation=runner.generation,
        memory=MemoryStatus(runner.config.memory),
        store=_store(runner.store.request_metrics),
    )
    if runner.states is not None:
        restored = runner.states.start.plan.checkpoint
        if restored is not None and not runner.ending:
            status = replace(status, phase="restoring")
        tasks = subtasks.tasks if subtasks is not None else ()
        status = _of_process(status, runner.states, tasks, runner.running)
    if incarnation is not None:
        status = replace(
            status,
            phase=_phase(incarnation.driver, running=runner.running) or status.phase,
            checkpoints=_checkpoints(incarnation, status.at_s),
            dropped_state=incarnation.plan.dropped,
            deleted_objects=incarnation.collector.deleted,
        )
    return merged(status, subtasks.elsewhere if subtasks is not None else ())


def status_of_worker(subtasks: LocalSubtasks, process: int, *, running: bool) -> JobStatus:
    states, start = subtasks.states, subtasks.states.start
    status = JobStatus(
        job=start.job.name,
        at_s=start.effects.clock.monotonic(),
        generation=start.author.generation,
        memory=MemoryStatus(start.config.memory),
        store=_store(start.store.request_metrics),
    )
    status = _of_process(status, states, subtasks.tasks, running)
    worker = WorkerStatus(
        start.share.worker,
        process,
        subtasks=len(subtasks.tasks),
        records_in=status.records_read,
        busy_s=sum(column(status.operators, "busy_s")),
        memory_bytes=status.memory.used_bytes,
    )
    return replace(status, workers=(worker,))


def _of_process(
    status: JobStatus, states: SubtaskStates, tasks: Sequence[Task], running: bool
) -> JobStatus:
    """The status with what the subtasks of this process do."""
    start = states.start
    status = replace(
        status,
        restore=_restore(states, running=running),
        local_copies=None if start.copies is None else start.copies.status(),
    )
    if not tasks:
        return status
    by_vertex: dict[str, list[Task]] = defaultdict(list)
    for task in tasks:
        by_vertex[task.id.operator].append(task)
    operators = [_operator(states, *subtasks, open=running) for subtasks in by_vertex.values()]
    return replace(
        status,
        operators=tuple(operators),
        uploads=_uploads(start.uploader, start.store.request_metrics),
        materializations=_materializations(states),
        state=_state(tasks, open=running),
        memory=_memory(start, operators),
    )


def _memory(start: JobStart, operators: Sequence[OperatorStatus]) -> MemoryStatus:
    resources, uploader = start.resources, start.uploader
    factories, tasks = resources.factories.values(), chain.from_iterable(column(operators, "tasks"))
    return MemoryStatus(
        budget_bytes=start.config.memory,
        rows_bytes=resources.rows.used_bytes,
        log_bytes=uploader.metrics.queued_bytes if uploader is not None else 0,
        files_bytes=resources.link.held_bytes,
        channels_bytes=sum(column(tasks, "input_bytes")),
        memtables_bytes=sum(column(factories, "memtable_bytes")),
        block_cache_bytes=sum(column(factories, "block_cache_bytes")),
    )


def _phase(driver: CheckpointDriver, *, running: bool) -> Phase | None:
    if driver.finished.is_set():
        return "stopped" if driver.savepoints.stopped is not None else "finished"
    return "running" if running else None


def _operator(states: SubtaskStates, *subtasks: Task, open: bool) -> OperatorStatus:
    """What the subtasks of a vertex do."""
    vertex, chains = subtasks[0].id.operator, column(subtasks, "parts.chain")
    outputs, works = column(subtasks, "parts.output"), column(subtasks, "parts.output.work")
    standstills = column(works, "standstills")
    amounts = [amount for amount in column(subtasks, "unread") if amount is not None]
    watermark = combined(
        [task for task in subtasks if not task.idle],
        [task for task in subtasks if task.idle],
        lambda task: task.event_time,
    )
    gives_times = any(column(chains, "event_time"))
    return OperatorStatus(
        id=vertex,
        source=subtasks[0].is_source,
        parallelism=len(subtasks),
        records_in=sum(column(subtasks, "records_in")),
        records_out=sum(column(outputs, "records")),
        busy_s=sum(column(works, "busy_s")),
        state_bytes=_table_bytes(subtasks) if open else 0,
        backpressured_s=sum(column(works, "backpressured_s")),
        longest_call_s=max(column(works, "longest_call_s")),
        longest_standstill_s=max(column(standstills, "longest_s")),
        long_standstills=sum(column(standstills, "count")),
        record_latency_s=distribution(chain.from_iterable(column(outputs, "latencies.recent"))),
        late_records=sum(column(chains, "late_records")),
        unfired_timers=sum(column(chains, "unfired_timers")),
        watermark_ms=watermark,
        event_time_unknown=int(watermark is None) if gives_times else None,
        unread=sum(amounts) if amounts else None,
        # A source counts for all of its subtasks in a process.
        skipped_records=max(column(subtasks, "skipped")),
        idle_subtasks=sum(column(subtasks, "idle")),
        splits=sum(column(subtasks, "splits")),
        idle_splits=sum(column(subtasks, "idle_splits")),
        keys_apart=states.start.registries[vertex].key_sides.disjoint_types,
        tasks=tuple(_task(task, states.subtasks[task.id]) for task in subtasks),
    )


def _task(task: Task, subtask: Subtask) -> TaskStatus:
    work, waiting = task.parts.output.work, task.waiting
    materializer = None if subtask.released else subtask.materializer
    return TaskStatus(
        subtask=task.id.subtask,
        busy_s=work.busy_s,
        backpressured_s=work.backpressured_s,
        input_bytes=sum(waiting),
        input_buffers=len(waiting),
        materialization_lag_s=materializer.late_s if materializer is not None else None,
    )


def _checkpoints(incarnation: Incarnation, now: float) -> CheckpointsStatus:
    restored, driver = incarnation.plan.checkpoint, incarnation.driver
    metrics = driver.metrics
    restored_checkpoint = restored.slot if restored is not None else None
    durations, last = metrics.durations_s, metrics.last
    return CheckpointsStatus(
        completed=metrics.completed,
        failed=metrics.failed,
        last_duration_s=last.seconds if last is not None else None,
        p50_s=percentile(durations, 0.50) if durations else None,
        p99_s=percentile(durations, 0.99) if durations else None,
        manifest_bytes=last.manifest_bytes if last is not None else 0,
        last_failure=metrics.last_failure,
        kept_aligned=driver.reports.kept_aligned,
        last_checkpoint=Slot(driver.next_slot - 1) if metrics.completed else restored_checkpoint,
        sizes=last.sizes if last is not None else None,
        aligned_edges=incarnation.aligned_edges,
        dropped_buffers=incarnation.dropped_buffers,
        interval_s=incarnation.start.config.checkpoint.interval,
        age_s=None if metrics.next_since is None else now - metrics.next_since,
        objects_lost=driver.objects.lost,
        objects_uploaded_again=driver.objects.uploaded_again,
        objects_missing=len(driver.objects.missing),
        contents=metrics.last_contents,
        phases=last.phases if last is not None else None,
    )


def _uploads(uploader: Uploader | None, requests: RequestMetrics | None) -> UploadsStatus:
    if uploader is None:
        return UploadsStatus()
    return _frozen(
        UploadsStatus,
        uploader.metrics,
        limit_bytes=uploader.config.limit_bytes,
        attempts=requests.segment_attempts if requests is not None else None,
        attempts_per_upload=distribution(requests.attempts_per_segment if requests else ()),
    )


def _store(metrics: RequestMetrics | None) -> StoreStatus | None:
    if metrics is None:
        return None
    requests = {}
    for field in fields(metrics):
        if isinstance(operation := getattr(metrics, field.name), OperationMetrics):
            requests[field.name] = _frozen(RequestsStatus, operation)
    return _frozen(StoreStatus, metrics, **requests)


def _frozen(kind: type[T], metrics: object, **figures: object) -> T:
    """A status from `figures` and the metrics of these names; recent values as a distribution."""
    values: dict[str, Any] = dict(figures)
    for field in fields(kind):  # type: ignore[arg-type]
        if field.init and field.name not in figures:
            value = getattr(metrics, field.name)
            values[field.name] = distribution(value) if isinstance(value, deque) else value
    return kind(**values)


def _materializations(states: SubtaskStates) -> MaterializationsStatus:
    snapshots = column(states.subtasks.values(), "snapshots.metrics")
    running, start = states.materializers, states.start
    config = start.config.materialize
    errors = [error for error in column(snapshots, "last_failure") if error is not None]
    return MaterializationsStatus(
        started=sum(column(snapshots, "started")),
        completed=sum(column(snapshots, "completed")),
        failed=sum(column(snapshots, "failed")),
        seconds=sum(column(snapshots, "seconds")),
        uploaded_bytes=sum(column(snapshots, "bytes_uploaded")),
        last_failure=errors[-1] if errors else None,
        duration_s=distribution(chain.from_iterable(column(snapshots, "recent_seconds"))),
        lag_s=max(column(running, "late_s"), default=0.0),
        missed=sum(column(running, "missed")),
        interval_s=config.interval if config.enabled and start.log_uploader else None,
    )


def _state(tasks: Sequence[Task], *, open: bool) -> StateStatus:
    snapshotters = column(tasks, "parts.snapshotter")
    logs = column(filter(None, column(snapshotters, "log")), "chain")
    materializations = filter(None, column(snapshotters, "materialization"))
    flushed = column(tasks, "parts.backend.metrics")
    return StateStatus(
        table_bytes=_table_bytes(tasks) if open else 0,
        materialized_bytes=sum(column(materializations, "table_bytes")),
        log_bytes=sum(column(logs, "log_bytes")),
        log_changes=sum(column(logs, "changes")),
        updates=sum(column(flushed, "updates")),
        changes=sum(column(flushed, "changes")),
    )


def _table_bytes(tasks: Sequence[Task]) -> int:
    return sum(t.parts.backend.table_bytes() for t in tasks if not t.exited)


def _restore(states: SubtaskStates, *, running: bool) -> RestoreStatus | None:
    progress, restored = states.progress, states.start.plan.checkpoint
    if restored is None:
        return None
    timings, hydration = progress.timings, progress.hydration
    return _frozen(
        RestoreStatus,
        progress,
        checkpoint=restored.slot,
        fraction=1.0 if running else progress.fraction,
        eta_s=None if running else progress.eta_s,
        phases=RestorePhases(
            download_s=timings.download.seconds,
            open_s=timings.open.seconds,
            fetch_log_s=timings.fetch_log.seconds,
            replay_s=timings.replay.seconds,
        ),
        hydration=None if hydration.started is None else _frozen(HydrationStatus, hydration),
    )
