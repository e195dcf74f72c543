"""Looks at a running job and says what it sees.

Invariant: a status is taken in the event loop of its runner, in one piece; looking changes
nothing.
"""

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

from tidelog.changelog.uploader import Uploader
from tidelog.ids import Slot, SubtaskId
from tidelog.materialize.materializer import Materializer
from tidelog.runtime.checkpoints.driver import CheckpointDriver
from tidelog.runtime.runner import JobRunner
from tidelog.runtime.status.checkpoints import CheckpointsStatus, RestorePhases, RestoreStatus
from tidelog.runtime.status.distribution import distribution, percentile
from tidelog.runtime.status.merged import merged
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
from tidelog.runtime.subtasks.state import SubtaskStates
from tidelog.runtime.tasks.task import Task
from tidelog.runtime.tasks.watermarks import combined
from tidelog.storage.port import OperationMetrics, RequestMetrics

T = TypeVar("T")


def status_of(runner: JobRunner) -> JobStatus:
    """The runner's status now; call it in the runner's event loop."""
    incarnation, subtasks = runner.incarnation, runner.subtasks
    status = JobStatus(
        job=runner.job.name,
        phase="starting",
        at_s=runner.effects.clock.monotonic(),
        generation=runner.generation,
        memory=MemoryStatus(runner.config.memory),
        store=_store(runner.store.request_metrics),
    )
    if runner.states is not None:
        restored = runner.states.start.plan.checkpoint
        phase: Phase = "starting" if restored is None else "restoring"
        tasks = subtasks.tasks if subtasks is not None else ()
        status = _of_process(replace(status, phase=phase), runner.states, tasks, runner.running)
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
        busy_s=sum(operator.busy_s for operator in status.operators),
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
    materializers = {
        subtask: entry.materializer
        for subtask, entry in states.subtasks.items()
        if entry.materializer is not None and not entry.released
    }
    by_vertex: dict[str, list[Task]] = defaultdict(list)
    for task in tasks:
        by_vertex[task.id.operator].append(task)
    operators = tuple(
        replace(
            _operator(vertex, subtasks, materializers, open=running),
            keys_apart=start.registries[vertex].key_sides.apart,
        )
        for vertex, subtasks in by_vertex.items()
    )
    return replace(
        status,
        operators=operators,
        uploads=_uploads(start.uploader, start.store.request_metrics),
        materializations=_materializations(states),
        state=_state(tasks, open=running),
        memory=_memory(start, operators),
    )


def _memory(start: JobStart, operators: Sequence[OperatorStatus]) -> MemoryStatus:
    resources, uploader = start.resources, start.uploader
    factories = resources.factories.values()
    return MemoryStatus(
        budget_bytes=start.config.memory,
        rows_bytes=resources.rows.used_bytes,
        log_bytes=uploader.metrics.queued_bytes if uploader is not None else 0,
        files_bytes=resources.link.held_bytes,
        channels_bytes=sum(task.input_bytes for operator in operators for task in operator.tasks),
        memtables_bytes=sum(factory.memtable_bytes for factory in factories),
        block_cache_bytes=sum(factory.block_cache_bytes for factory in factories),
    )


def _phase(driver: CheckpointDriver, *, running: bool) -> Phase | None:
    if driver.finished.is_set():
        return "stopped" if driver.savepoints.stopped is not None else "finished"
    return "running" if running else None


def _operator(
    vertex: str,
    subtasks: Sequence[Task],
    materializers: Mapping[SubtaskId, Materializer],
    *,
    open: bool,
) -> OperatorStatus:
    parts = [task.parts for task in subtasks]
    amounts = [amount for task in subtasks if (amount := task.unread) is not None]
    watermark = combined(
        [task for task in subtasks if not task.idle],
        [task for task in subtasks if task.idle],
        lambda task: task.event_time,
    )
    gives_times = any(p.chain.event_time is not None for p in parts)
    return OperatorStatus(
        id=vertex,
        source=subtasks[0].is_source,
        parallelism=len(subtasks),
        records_in=sum(task.records_in for task in subtasks),
        records_out=sum(p.output.records for p in parts),
        busy_s=sum(p.output.work.busy_s for p in parts),
        state_bytes=_table_bytes(subtasks) if open else 0,
        backpressured_s=sum(p.output.work.backpressured_s for p in parts),
        longest_call_s=max(p.output.work.longest_call_s for p in parts),
        longest_standstill_s=max(p.output.work.standstills.longest_s for p in parts),
        long_standstills=sum(p.output.work.standstills.count for p in parts),
        record_latency_s=distribution(
            seconds for p in parts for seconds in p.output.latencies.recent
        ),
        late_records=sum(p.chain.late_records for p in parts),
        unfired_timers=sum(p.chain.unfired_timers for p in parts),
        watermark_ms=watermark,
        event_time_unknown=int(watermark is None) if gives_times else None,
        unread=sum(amounts) if amounts else None,
        # A source counts for all of its subtasks in a process.
        skipped_records=max(task.skipped for task in subtasks),
        idle_subtasks=sum(task.idle for task in subtasks),
        splits=sum(task.splits for task in subtasks),
        idle_splits=sum(task.idle_splits for task in subtasks),
        tasks=tuple(_task(task, materializers.get(task.id)) for task in subtasks),
    )


def _task(task: Task, materializer: Materializer | None) -> TaskStatus:
    work, waiting = task.parts.output.work, task.waiting
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
    parts = {part.name: getattr(metrics, part.name) for part in fields(metrics)}
    requests = {
        name: _frozen(RequestsStatus, part)
        for name, part in parts.items()
        if isinstance(part, OperationMetrics)
    }
    return _frozen(StoreStatus, metrics, **requests)


def _frozen(kind: type[T], metrics: object, **figures: object) -> T:
    """A status from `figures` and the metrics of the same names; of recent values, how they are
    distributed.
    """
    values: dict[str, Any] = dict(figures)
    for name in [f.name for f in fields(kind) if f.init and f.name not in figures]:  # type: ignore[arg-type]
        value = getattr(metrics, name)
        values[name] = distribution(value) if isinstance(value, deque) else value
    return kind(**values)


def _materializations(states: SubtaskStates) -> MaterializationsStatus:
    snapshots = [subtask.snapshots.metrics for subtask in states.subtasks.values()]
    running, start = states.materializers, states.start
    config = start.config.materialize
    errors = [m.last_failure for m in snapshots if m.last_failure is not None]
    return MaterializationsStatus(
        started=sum(m.started for m in snapshots),
        completed=sum(m.completed for m in snapshots),
        failed=sum(m.failed for m in snapshots),
        seconds=sum(m.seconds for m in snapshots),
        uploaded_bytes=sum(m.bytes_uploaded for m in snapshots),
        last_failure=errors[-1] if errors else None,
        duration_s=distribution(s for m in snapshots for s in m.recent_seconds),
        lag_s=max((m.late_s for m in running), default=0.0),
        missed=sum(m.missed for m in running),
        interval_s=config.interval if config.enabled and start.log_uploader else None,
    )


def _state(tasks: Sequence[Task], *, open: bool) -> StateStatus:
    parts = [task.parts for task in tasks]
    logs = [log for p in parts if (log := p.snapshotter.log) is not None]
    refs = [p.snapshotter.materialization for p in parts]
    return StateStatus(
        table_bytes=_table_bytes(tasks) if open else 0,
        materialized_bytes=sum(ref.table_bytes for ref in refs if ref is not None),
        log_bytes=sum(log.chain.log_bytes for log in logs),
        log_changes=sum(log.chain.changes for log in logs),
        updates=sum(p.backend.metrics.updates for p in parts),
        changes=sum(p.backend.metrics.changes for p in parts),
    )


def _table_bytes(tasks: Sequence[Task]) -> int:
    return sum(t.parts.backend.table_bytes() for t in tasks if not t.exited)


def _restore(states: SubtaskStates, *, running: bool) -> RestoreStatus | None:
    progress, restored = states.progress, states.start.plan.checkpoint
    if restored is None:
        return None
    timings = progress.timings
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
    )
