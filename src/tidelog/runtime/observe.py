"""Looks at a running job and says what it sees.

Invariant: a status is taken in the event loop of its runner, in one piece; looking changes
nothing.
"""

from collections import defaultdict
from collections.abc import Sequence

from tidelog.checkpoint.local_first import LocalFirstStore
from tidelog.dstl.metrics import UploadMetrics
from tidelog.ids import Slot
from tidelog.runtime.checkpointing import CheckpointMetrics
from tidelog.runtime.deploy import Deployment
from tidelog.runtime.distribution import distribution, percentile
from tidelog.runtime.runner import JobRunner
from tidelog.runtime.snapshot import LogSnapshotter, TableSnapshotter
from tidelog.runtime.status import (
    CheckpointsStatus,
    JobStatus,
    LocalCopiesStatus,
    MaterializationsStatus,
    OperatorStatus,
    Phase,
    RequestsStatus,
    RestorePhases,
    RestoreStatus,
    StateStatus,
    StoreStatus,
    UploadsStatus,
)
from tidelog.runtime.tasks.source_task import SourceTask
from tidelog.runtime.tasks.task import Task
from tidelog.state.timings import RestoreTimings
from tidelog.storage.metrics import OperationMetrics, RequestMetrics
from tidelog.storage.port import ObjectStore
from tidelog.storage.retry import RetryingStore


def status_of(runner: JobRunner) -> JobStatus:
    """The runner's status now; call it in the runner's event loop."""
    deployment = runner.deployment
    return JobStatus(
        job=runner.job.name,
        phase=_phase(runner),
        at_s=runner.effects.clock.monotonic(),
        generation=runner.generation,
        operators=_operators(deployment.tasks, open=runner.running) if deployment else (),
        checkpoints=_checkpoints(runner),
        uploads=_uploads(runner.uploader.metrics) if runner.uploader else UploadsStatus(),
        materializations=_materializations(deployment) if deployment else MaterializationsStatus(),
        state=_state(deployment.tasks, open=runner.running) if deployment else StateStatus(),
        restore=_restore(runner),
        deleted_objects=runner.collector.deleted if runner.collector else 0,
        local_copies=_copies(runner.objects),
        store=_store(runner.store.metrics) if isinstance(runner.store, RetryingStore) else None,
    )


def _copies(objects: ObjectStore) -> LocalCopiesStatus | None:
    if not isinstance(objects, LocalFirstStore):
        return None
    metrics = objects.metrics
    return LocalCopiesStatus(
        objects=len(objects.copies),
        bytes=objects.copied_bytes,
        used=metrics.used,
        used_bytes=metrics.used_bytes,
        fetched=metrics.fetched,
        fetched_bytes=metrics.fetched_bytes,
        damaged=metrics.damaged,
        refused=metrics.refused,
        last_problem=metrics.last_problem,
    )


def _phase(runner: JobRunner) -> Phase:
    if runner.driver is None:
        return "starting"
    if runner.driver.finished.is_set():
        return "stopped" if runner.driver.savepoints.stopped is not None else "finished"
    if runner.running:
        return "running"
    return "starting" if runner.restored is None else "restoring"


def _operators(tasks: Sequence[Task], *, open: bool) -> tuple[OperatorStatus, ...]:
    by_vertex: dict[str, list[Task]] = defaultdict(list)
    for task in tasks:
        by_vertex[task.id.vertex].append(task)
    return tuple(_operator(*vertex, open=open) for vertex in by_vertex.items())


def _operator(vertex: str, subtasks: Sequence[Task], *, open: bool) -> OperatorStatus:
    parts = [task.parts for task in subtasks]
    return OperatorStatus(
        id=vertex,
        source=isinstance(subtasks[0], SourceTask),
        parallelism=len(subtasks),
        records_in=sum(p.metrics.records_in for p in parts),
        records_out=sum(p.output.records for p in parts),
        busy_s=sum(p.output.work.busy_s for p in parts),
        state_bytes=_table_bytes(subtasks) if open else 0,
        backpressured_s=sum(p.output.work.backpressured_s for p in parts),
        late_records=sum(p.chain.late_records for p in parts),
    )


def _checkpoints(runner: JobRunner) -> CheckpointsStatus:
    restored = runner.restored.slot if runner.restored else None
    if runner.driver is None:
        return CheckpointsStatus(last_slot=restored)
    metrics: CheckpointMetrics = runner.driver.metrics
    durations = sorted(metrics.durations_s)
    return CheckpointsStatus(
        completed=metrics.completed,
        failed=metrics.failed,
        last_duration_s=metrics.last_duration_s,
        p50_s=percentile(durations, 0.50),
        p99_s=percentile(durations, 0.99),
        manifest_bytes=metrics.last_manifest_bytes,
        last_failure=metrics.last_failure,
        kept_aligned=metrics.kept_aligned,
        last_slot=Slot(runner.driver.next_slot - 1) if metrics.completed else restored,
        sizes=metrics.last_sizes,
        aligned_edges=runner.deployment.aligned_edges if runner.deployment else (),
        dropped_buffers=runner.deployment.dropped_buffers if runner.deployment else 0,
    )


def _uploads(metrics: UploadMetrics) -> UploadsStatus:
    return UploadsStatus(
        requests=metrics.uploads + metrics.failures,
        failures=metrics.failures,
        bytes=metrics.bytes,
        blocks=metrics.blocks,
        seconds=metrics.seconds,
        largest_bytes=metrics.largest_segment,
        queued_bytes=metrics.queued_bytes,
        backpressured_s=metrics.backpressured_s,
        latency_s=distribution(metrics.recent_seconds),
        segment_bytes=distribution(metrics.recent_bytes),
        segment_blocks=distribution(metrics.recent_blocks),
    )


def _store(metrics: RequestMetrics) -> StoreStatus:
    return StoreStatus(
        put=_requests(metrics.put),
        create=_requests(metrics.create),
        get=_requests(metrics.get),
        list=_requests(metrics.list),
        head=_requests(metrics.head),
        delete=_requests(metrics.delete),
        bytes_written=metrics.bytes_written,
        bytes_read=metrics.bytes_read,
    )


def _requests(metrics: OperationMetrics) -> RequestsStatus:
    return RequestsStatus(
        calls=metrics.calls,
        attempts=metrics.attempts,
        retries=metrics.retries,
        hedges=metrics.hedges,
        failures=metrics.failures,
        seconds=metrics.seconds,
        latency_s=distribution(metrics.recent_seconds),
    )


def _materializations(deployment: Deployment) -> MaterializationsStatus:
    snapshots = [snapshots.metrics for snapshots in deployment.states.snapshots]
    errors = [m.last_error for m in deployment.states.materializers if m.last_error is not None]
    return MaterializationsStatus(
        started=sum(m.started for m in snapshots),
        completed=sum(m.completed for m in snapshots),
        failed=sum(m.failed for m in snapshots),
        seconds=sum(m.seconds for m in snapshots),
        uploaded_bytes=sum(m.bytes_uploaded for m in snapshots),
        last_failure=errors[-1] if errors else None,
        duration_s=distribution(s for m in snapshots for s in m.recent_seconds),
    )


def _state(tasks: Sequence[Task], *, open: bool) -> StateStatus:
    parts = [task.parts for task in tasks]
    logs = [p.snapshotter.log for p in parts if isinstance(p.snapshotter, LogSnapshotter)]
    refs = [log.materialization for log in logs]
    refs += [p.snapshotter.last for p in parts if isinstance(p.snapshotter, TableSnapshotter)]
    return StateStatus(
        table_bytes=_table_bytes(tasks) if open else 0,
        materialized_bytes=sum(ref.table_bytes for ref in refs if ref is not None),
        log_bytes=sum(log.chain.log_bytes for log in logs),
        log_changes=sum(log.chain.changes for log in logs),
        updates=sum(p.backend.metrics.updates for p in parts),
        changes=sum(p.backend.metrics.changes for p in parts),
    )


def _table_bytes(tasks: Sequence[Task]) -> int:
    return sum(t.parts.backend.table.size_bytes() for t in tasks if not t.exited)


def _restore(runner: JobRunner) -> RestoreStatus | None:
    progress, restored = runner.progress, runner.restored
    if progress is None or restored is None:
        return None
    return RestoreStatus(
        slot=restored.slot,
        fraction=1.0 if runner.running else progress.fraction,
        eta_s=None if runner.running else progress.eta_s,
        bytes=progress.bytes,
        total_bytes=progress.total_bytes,
        changes=progress.changes,
        total_changes=progress.total_changes,
        seconds=progress.seconds,
        phases=_phases(progress.timings),
    )


def _phases(timings: RestoreTimings) -> RestorePhases:
    return RestorePhases(
        download_s=timings.download.seconds,
        open_s=timings.open.seconds,
        fetch_log_s=timings.fetch_log.seconds,
        replay_s=timings.replay.seconds,
    )
