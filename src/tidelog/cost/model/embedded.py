"""The estimate of a job on tidelog's own runtime, with its changelog on or off.

Invariants: figures are those of the whole job; a process is one job with its own manifests. With
the changelog off there is no log, and every checkpoint uploads the new files of all tables. A
checkpoint that takes longer than its interval delays the next one.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from tidelog.cost.model.formulas import (
    Retention,
    descriptor_bytes,
    log_peak_bytes,
    manifest_bytes,
    replay_age_s,
    segment_life_s,
)
from tidelog.cost.model.job import Settings, Workload
from tidelog.cost.model.log import LogCycle, flushes, log_cycle
from tidelog.cost.model.restoring import (
    Fetch,
    Objects,
    first_record_s,
    reads,
    restore_s,
    side_by_side_s,
)
from tidelog.cost.model.tables import (
    MaterializationTrigger,
    TableUploads,
    effective_interval,
    materializing,
    snapshot,
)
from tidelog.cost.model.usage import Estimate, Flow, LogEstimate, Strategy, Usage
from tidelog.materialize.pacing import TRANSFERS

_SOURCE_DESCRIPTOR: Final = descriptor_bytes(0, 256)
"""The table of a source is small, so it lies within its descriptor."""
_ROUNDS: Final = 32
"""Rounds that settle the interval of checkpoints and their duration, which depend on each other."""


@dataclass(frozen=True, slots=True)
class _Job:
    """A job whose checkpoints are `cycle_s` seconds apart."""

    settings: Settings
    cycle_s: float
    tables: TableUploads
    log: LogCycle | None

    @property
    def source_period(self) -> float:
        """Seconds between two uploads of the table of a source."""
        return self.settings.materialize.interval if self.log else self.cycle_s

    @property
    def manifest(self) -> float:
        """Bytes of an average manifest of one job; log ranges grow with the log's age."""
        settings, tables, log = self.settings, self.tables, self.log
        keyed = settings.keyed_per_process * settings.workers
        sources = settings.sources_per_process * settings.workers
        if log is None:
            return manifest_bytes(keyed + sources, 0, 0)
        segment_s = self.cycle_s / log.segments
        # A range whose segment lies across the materialization is kept whole.
        age = tables.period / 2 + tables.upload + segment_s / 2
        ranges = keyed * log.presence * age / segment_s
        ranges += sources * age / max(segment_s, min(self.cycle_s, settings.flush.max_age))
        return manifest_bytes(keyed + sources, ranges, log.inline_bytes * settings.workers)

    def checkpoint_s(self, merging: float = 1.0) -> float:
        """The log up to the barrier, or all tables; the manifest, and the LIST that shows no newer
        start. `merging` times what merges renew in the mean of all checkpoints.
        """
        link = self.settings.link
        before = self.log.waited_s if self.log else self._tables_s(merging)
        return before + 2 * link.latency_s + self.manifest / link.bytes_per_s

    def _tables_s(self, merging: float) -> float:
        """All new files, then the descriptors, which are written at about the same time."""
        link, keyed, table = self.settings.link, self.settings.keyed_per_process, self.tables.table
        files = table.new_files + (merging - 1) * table.merged_files
        size = table.new_bytes + (merging - 1) * table.merged_bytes
        written = self._descriptors().bytes / link.bytes_per_s
        files_s = side_by_side_s(Objects(keyed * files, keyed * size), TRANSFERS, link)
        return files_s + link.latency_s + written

    @property
    def lasting_s(self) -> float:
        """Seconds from one checkpoint to the next: of those after a merge, and of the others."""
        interval, merges = self.settings.checkpoint_interval, self.tables.table.merges
        if self.log is not None:
            return max(interval, self.checkpoint_s())
        merging, quiet = self.checkpoint_s(1 / merges), self.checkpoint_s(0.0)
        return merges * max(interval, merging) + (1 - merges) * max(interval, quiet)

    @property
    def retention(self) -> Retention:
        return Retention(self.settings.retain, self.cycle_s, self.checkpoint_s())

    def _descriptors(self, keyed_times: float = 1.0, source_times: float = 1.0) -> Objects:
        """Descriptors of one process, so many of each subtask."""
        keyed = self.settings.keyed_per_process * keyed_times
        sources = self.settings.sources_per_process * source_times
        written = keyed * self.tables.table.descriptor_bytes + sources * _SOURCE_DESCRIPTOR
        return Objects(keyed + sources, written)

    def flows(self) -> tuple[Flow, ...]:
        settings, tables, cycle_s = self.settings, self.tables, self.cycle_s
        table, period, retention = tables.table, tables.period, self.retention
        keyed, sources = settings.parallelism, settings.sources_per_process * settings.uploaders
        # With the changelog off the last checkpoint of a file is the one before the snapshot that
        # does without it.
        retained_s = retention.mean_s if self.log else retention.slot_s - cycle_s
        # Files live as long as their rows: what comes in goes out, and all the others stay.
        in_use = table.stored_bytes / table.new_bytes * period
        flows = (
            Flow("manifest", settings.processes / cycle_s, self.manifest, retention.slot_s),
            Flow(
                "table file",
                keyed * table.new_files / period,
                table.new_bytes / table.new_files,
                in_use + tables.upload / 2 + retained_s,
            ),
            Flow("descriptor", keyed / period, table.descriptor_bytes, period + retained_s),
            Flow(
                "source descriptor",
                sources / self.source_period,
                _SOURCE_DESCRIPTOR,
                self.source_period + retained_s,
            ),
        )
        return flows if self.log is None else (self._segments(self.log), *flows)

    def _segments(self, log: LogCycle) -> Flow:
        settings, period, upload = self.settings, self.tables.period, self.tables.upload
        keyed, sources = settings.keyed_per_process, settings.sources_per_process
        alone = segment_life_s(period, keyed, sources, upload, self.retention)
        shared = segment_life_s(period, keyed + sources, 0, upload, self.retention)
        return Flow(
            "segment",
            settings.uploaders * log.segments / self.cycle_s,
            log.segment_bytes / log.segments,
            log.shared * shared + (1 - log.shared) * alone,
        )

    @property
    def replayed_cycles(self) -> float:
        """Cycles whose log a restore replays, at most."""
        keyed, tables = self.settings.keyed_per_process, self.tables
        return replay_age_s(tables.longest, keyed, tables.upload) / self.cycle_s

    def fetch(self) -> Fetch:
        """What a restore of one process reads, at most."""
        settings, table, retain = self.settings, self.tables.table, self.settings.retain
        keyed, cycles, log = settings.keyed_per_process, self.replayed_cycles, self.log
        older_s = (retain - 1) * self.cycle_s
        return Fetch(
            manifests=Objects(retain, retain * self.manifest),
            # What the older checkpoints name besides the newest.
            described=self._descriptors(
                1 + older_s / self.tables.period, 1 + older_s / self.source_period
            ),
            files=Objects(keyed * table.stored_files, keyed * table.stored_bytes),
            segments=Objects(
                cycles * log.segments if log else 0.0, cycles * log.segment_bytes if log else 0.0
            ),
            changes=cycles * log.changes if log else 0.0,
        )


def estimate_changelog(workload: Workload, settings: Settings) -> Estimate:
    def job_at(cycle_s: float) -> _Job:
        log = log_cycle(workload, settings, cycle_s)
        return _Job(settings, cycle_s, materializing(workload, settings, log, cycle_s), log)

    job = _keeping_up(job_at, settings)
    assert job.log is not None
    return replace(
        _estimate(Strategy.CHANGELOG, job),
        materialize_s=job.tables.period,
        trigger=job.tables.trigger,
        log=_log_estimate(workload, job, job.log),
    )


def estimate_incremental(workload: Workload, settings: Settings) -> Estimate:
    def job_at(cycle_s: float) -> _Job:
        rows = flushes(workload, settings.parallelism, settings.flush, cycle_s).all_rows
        age, subtasks = settings.descriptor_age, settings.parallelism
        table = snapshot(workload, subtasks, rows / cycle_s, cycle_s, age=age)
        return _Job(settings, cycle_s, TableUploads(table, cycle_s, cycle_s, 0.0), None)

    return _estimate(Strategy.INCREMENTAL, _keeping_up(job_at, settings))


def _keeping_up(job_at: Callable[[float], _Job], settings: Settings) -> _Job:
    """The job with the cycle that the duration of its checkpoints leads to."""
    job = job_at(settings.checkpoint_interval)
    for _ in range(_ROUNDS):
        if job.lasting_s == job.cycle_s:
            break
        job = job_at(job.lasting_s)
    return job


def _estimate(strategy: Strategy, job: _Job) -> Estimate:
    settings, fetch = job.settings, job.fetch()
    usage = Usage(job.flows(), reads(fetch, settings, job.cycle_s))
    return Estimate(
        strategy=strategy,
        usage=usage,
        cycle_s=job.lasting_s,
        checkpoint_s=job.checkpoint_s(),
        late_s=job.lasting_s + job.checkpoint_s(),
        restore_s=restore_s(fetch, settings),
        first_record_s=first_record_s(fetch, settings),
        warnings=tuple(_warnings(job, usage.uploaded_per_s / settings.uploaders)),
    )


def _log_estimate(workload: Workload, job: _Job, log: LogCycle) -> LogEstimate:
    settings, tables = job.settings, job.tables
    cycles_per_s = settings.uploaders / job.cycle_s
    changes_per_s, bytes_per_s = log.changes * cycles_per_s, log.segment_bytes * cycles_per_s
    age_s = tables.longest + tables.upload + job.retention.longest_s
    return LogEstimate(
        combine=max(1.0, workload.writes_per_s / changes_per_s),
        changes_per_s=changes_per_s,
        bytes_per_s=bytes_per_s,
        peak_bytes=bytes_per_s * age_s,
        rule_of_thumb_bytes=log_peak_bytes(
            changes_per_s, bytes_per_s / changes_per_s, settings.materialize.interval
        ),
        replay_changes=job.replayed_cycles * log.changes * settings.uploaders,
    )


def _warnings(job: _Job, uploaded_per_s: float) -> list[str]:
    settings, tables, warnings = job.settings, job.tables, list[str]()
    interval, link = settings.materialize.interval, settings.link
    if tables.trigger is MaterializationTrigger.BANDWIDTH:
        warnings.append(
            "tables cannot be uploaded within the materialization interval of "
            f"{interval:g} s over this link: it takes {tables.period:.0f} s"
        )
    elif (actual_s := effective_interval(settings, job.cycle_s)) > interval and job.log:
        warnings.append(
            f"tables are materialized every {actual_s:.1f} s, not every {interval:g} s: there is "
            "nothing to do before something was flushed, at checkpoints and every "
            f"{settings.flush.max_age:g} s"
        )
    elif tables.trigger not in (None, MaterializationTrigger.INTERVAL):
        warnings.append(
            f"tables are materialized every {tables.period:.1f} s, before their interval of "
            f"{interval:g} s: {tables.trigger}"
        )
    if job.log and uploaded_per_s > link.bytes_per_s:
        warnings.append(
            f"the link is too slow: {uploaded_per_s / 1e6:.1f} MB a second have to go through "
            f"{link.bytes_per_s / 1e6:.1f}, so writers will wait"
        )
    if job.checkpoint_s() > settings.checkpoint_interval:
        warnings.append(
            f"a checkpoint takes {job.checkpoint_s():.2f} s, more than its interval of "
            f"{settings.checkpoint_interval:g} s"
        )
    return warnings
