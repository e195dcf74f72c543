"""The estimate of a job on tidelog's own runtime, with its changelog on or off.

Invariants: figures are those of the whole job; a process is one job with its own manifests. With
the changelog off there is no log, and every checkpoint uploads the new files of all tables. A
checkpoint that takes longer than its interval delays the next one.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from math import ceil
from typing import Final

from tidelog.cost.model.estimate import Estimate, LogEstimate, Strategy
from tidelog.cost.model.formulas import Retention, log_peak_bytes, replay_age_s, segment_life_s
from tidelog.cost.model.log import LogCycle, flushes, log_cycle
from tidelog.cost.model.manifest_size import descriptor_bytes, manifest_bytes
from tidelog.cost.model.restoring import Fetch, Objects, reads, restore_s, side_by_side_s
from tidelog.cost.model.settings import Settings
from tidelog.cost.model.tables import Snapshot, TableRules, snapshot
from tidelog.cost.model.usage import Flow, Usage
from tidelog.cost.model.workload import Workload
from tidelog.materialize.materializer import LOOK_S
from tidelog.materialize.pacing import TRANSFERS

_SOURCE_DESCRIPTOR: Final = descriptor_bytes(0, 256)
"""The table of a source is small, so it lies within its descriptor."""
_ROUNDS: Final = 8
"""An interval and how long uploads in it take depend on each other: so many rounds settle them."""
_LEAST_SHARE: Final = 0.1
"""Share of the bandwidth that tables get when the log leaves them nothing."""


class Trigger(StrEnum):
    """What starts most materializations."""

    INTERVAL = "interval"
    LOG_SIZE = "log size"
    REPLAY_TIME = "replay time"
    BANDWIDTH = "bandwidth"
    """Uploading all tables takes the whole interval, so none starts earlier."""


@dataclass(frozen=True, slots=True)
class _Tables:
    """The uploads of the table of one subtask with keyed state; times in seconds."""

    table: Snapshot
    descriptor_bytes: float
    period: float
    """Between two uploads, on average."""
    longest: float
    """Between two uploads, at most."""
    upload: float
    """From the frozen table to the durable descriptor, while the job goes on."""
    trigger: Trigger | None = None


@dataclass(frozen=True, slots=True)
class _Job:
    """A job whose checkpoints are `cycle_s` seconds apart."""

    settings: Settings
    cycle_s: float
    tables: _Tables
    log: LogCycle | None

    @property
    def source_period(self) -> float:
        """Seconds between two uploads of the table of a source."""
        return self.settings.materialize.interval if self.log else self.cycle_s

    @property
    def manifest(self) -> float:
        """Bytes of an average manifest of one process; log ranges grow with the log's age."""
        settings, tables, log = self.settings, self.tables, self.log
        keyed, sources = settings.keyed_per_process, settings.sources_per_process
        if log is None:
            return manifest_bytes(keyed + sources, 0, 0)
        segment_s = self.cycle_s / log.segments
        # A range whose segment lies across the materialization is kept whole.
        age = tables.period / 2 + tables.upload + segment_s / 2
        ranges = keyed * log.presence * age / segment_s
        ranges += sources * age / max(segment_s, min(self.cycle_s, settings.flush.max_age))
        return manifest_bytes(keyed + sources, ranges, log.inline_bytes)

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
        moved = side_by_side_s(Objects(keyed * files, keyed * size), TRANSFERS, link)
        return moved + link.latency_s + written

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
        written = keyed * self.tables.descriptor_bytes + sources * _SOURCE_DESCRIPTOR
        return Objects(keyed + sources, written)

    def flows(self) -> tuple[Flow, ...]:
        """All objects that are written."""
        settings, tables, cycle_s = self.settings, self.tables, self.cycle_s
        table, period, retention = tables.table, tables.period, self.retention
        keyed, sources = settings.parallelism, settings.sources_per_process * settings.processes
        # With the changelog off the last checkpoint of a file is the one before the snapshot that
        # does without it.
        kept = retention.mean_s if self.log else retention.slot_s - cycle_s
        # Files live as long as their rows: what comes in goes out, and all the others stay.
        in_use = table.stored_bytes / table.new_bytes * period
        others = (
            Flow("manifest", settings.processes / cycle_s, self.manifest, retention.slot_s),
            Flow(
                "table file",
                keyed * table.new_files / period,
                table.new_bytes / table.new_files,
                in_use + tables.upload / 2 + kept,
            ),
            Flow("descriptor", keyed / period, tables.descriptor_bytes, period + kept),
            Flow(
                "source descriptor",
                sources / self.source_period,
                _SOURCE_DESCRIPTOR,
                self.source_period + kept,
            ),
        )
        return others if self.log is None else (self._segments(self.log), *others)

    def _segments(self, log: LogCycle) -> Flow:
        settings, period, upload = self.settings, self.tables.period, self.tables.upload
        keyed, sources = settings.keyed_per_process, settings.sources_per_process
        alone = segment_life_s(period, keyed, sources, upload, self.retention)
        shared = segment_life_s(period, keyed + sources, 0, upload, self.retention)
        return Flow(
            "segment",
            settings.processes * log.segments / self.cycle_s,
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
            slots=Objects(retain, retain * self.manifest),
            # What the older checkpoints name besides the newest.
            described=self._descriptors(
                1 + older_s / self.tables.period, 1 + older_s / self.source_period
            ),
            descriptors=self._descriptors(),
            files=Objects(keyed * table.stored_files, keyed * table.stored_bytes),
            segments=Objects(
                cycles * log.segments if log else 0.0, cycles * log.segment_bytes if log else 0.0
            ),
            changes=cycles * log.changes if log else 0.0,
        )


def estimate_changelog(
    workload: Workload, settings: Settings, rules: TableRules | None = None
) -> Estimate:
    """Estimate a job that keeps a changelog."""
    rules = rules or TableRules()

    def at(cycle_s: float) -> _Job:
        log = log_cycle(workload, settings, cycle_s)
        return _Job(settings, cycle_s, _materializing(workload, settings, rules, log, cycle_s), log)

    job = _keeping_up(at, settings)
    assert job.log is not None
    return replace(
        _estimate(Strategy.CHANGELOG, job),
        materialize_s=job.tables.period,
        trigger=job.tables.trigger,
        log=_log_estimate(workload, job, job.log),
    )


def estimate_incremental(
    workload: Workload, settings: Settings, rules: TableRules | None = None
) -> Estimate:
    """Estimate a job without changelog."""
    # No row is written between the two flushes of such a snapshot, so there is one.
    rules = rules or TableRules(flushes_per_snapshot=1)

    def at(cycle_s: float) -> _Job:
        rows = flushes(workload, settings.parallelism, settings.flush, cycle_s).all_rows
        table = snapshot(workload, settings.parallelism, rules, rows / cycle_s, cycle_s)
        descriptor = descriptor_bytes(table.stored_files, rules.private_bytes)
        return _Job(settings, cycle_s, _Tables(table, descriptor, cycle_s, cycle_s, 0.0), None)

    return _estimate(Strategy.INCREMENTAL, _keeping_up(at, settings))


def _keeping_up(at: Callable[[float], _Job], settings: Settings) -> _Job:
    """The job with the cycle that the duration of its checkpoints leads to."""
    job = at(settings.checkpoint_interval)
    for _ in range(4 * _ROUNDS):
        if job.lasting_s == job.cycle_s:
            break
        job = at(job.lasting_s)
    return job


def _estimate(strategy: Strategy, job: _Job) -> Estimate:
    settings, fetch = job.settings, job.fetch()
    usage = Usage(job.flows(), reads(fetch, settings, job.cycle_s))
    return Estimate(
        strategy=strategy,
        usage=usage,
        cycle_s=job.lasting_s,
        checkpoint_s=job.checkpoint_s(),
        restore_s=restore_s(fetch, settings),
        replay_counted=True,
        warnings=tuple(_warnings(job, usage.uploaded_per_s / settings.processes)),
    )


def _materializing(
    workload: Workload, settings: Settings, rules: TableRules, log: LogCycle, cycle_s: float
) -> _Tables:
    """The interval that the runtime's triggers, and the time uploads take, lead to."""
    subtasks, interval = settings.parallelism, settings.materialize.interval
    changes_per_s = log.changes / cycle_s * settings.processes
    log_per_s = log.segment_bytes / cycle_s
    of_subtask = 1 / settings.keyed_per_process
    table = snapshot(workload, subtasks, rules, changes_per_s, interval)
    trigger, early = _first_trigger(
        settings, table.stored_bytes, changes_per_s / subtasks, log_per_s * of_subtask
    )
    period = interval if early >= interval else interval / ceil(interval / early)
    longest, upload = min(interval, early), 0.0
    for _ in range(_ROUNDS):
        table = snapshot(workload, subtasks, rules, changes_per_s, period)
        upload = _upload_s(settings, table, log_per_s)
        taken = upload * settings.keyed_per_process
        if taken > period:
            trigger, period, longest = Trigger.BANDWIDTH, taken, max(taken, longest)
    descriptor = descriptor_bytes(table.stored_files, rules.private_bytes)
    return _Tables(table, descriptor, period, longest, upload, trigger)


def _first_trigger(
    settings: Settings, table_bytes: float, changes_per_s: float, bytes_per_s: float
) -> tuple[Trigger, float]:
    """The trigger that comes first and the seconds until then, the interval's among them."""
    config = settings.materialize
    load = table_bytes / config.load_rate
    replay = max(config.replay_target, config.replay_share * load) * config.replay_rate
    log = max(config.min_log_bytes, config.log_factor * table_bytes)
    # The runtime looks every LOOK_S seconds for a trigger that holds by now.
    found = {
        Trigger.INTERVAL: config.interval,
        Trigger.REPLAY_TIME: ceil(replay / changes_per_s / LOOK_S) * LOOK_S,
        Trigger.LOG_SIZE: ceil(log / bytes_per_s / LOOK_S) * LOOK_S,
    }
    trigger = min(found, key=found.__getitem__)
    return trigger, found[trigger]


def _upload_s(settings: Settings, table: Snapshot, log_bytes_per_s: float) -> float:
    """Some files at a time, in what the log leaves of the link, then the descriptor."""
    link = settings.link
    free = max(link.bytes_per_s - log_bytes_per_s, _LEAST_SHARE * link.bytes_per_s)
    speed = min(free, settings.materialize.bytes_per_s or free)
    files = Objects(table.new_files, table.new_bytes)
    return side_by_side_s(files, TRANSFERS, replace(link, bytes_per_s=speed)) + link.latency_s


def _log_estimate(workload: Workload, job: _Job, log: LogCycle) -> LogEstimate:
    settings, tables = job.settings, job.tables
    cycles_per_s = settings.processes / job.cycle_s
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
        replay_changes=job.replayed_cycles * log.changes * settings.processes,
    )


def _warnings(job: _Job, uploaded_per_s: float) -> list[str]:
    settings, tables, found = job.settings, job.tables, list[str]()
    interval, link = settings.materialize.interval, settings.link
    if tables.trigger is Trigger.BANDWIDTH:
        found.append(
            "tables cannot be uploaded within the materialization interval of "
            f"{interval:g} s over this link: it takes {tables.period:.0f} s"
        )
    elif tables.trigger not in (None, Trigger.INTERVAL):
        found.append(
            f"tables are materialized every {tables.period:.1f} s, before their interval of "
            f"{interval:g} s: {tables.trigger}"
        )
    if job.log and uploaded_per_s > link.bytes_per_s:
        found.append(
            f"the link is too slow: {uploaded_per_s / 1e6:.1f} MB a second have to go through "
            f"{link.bytes_per_s / 1e6:.1f}, so writers will wait"
        )
    if job.checkpoint_s() > settings.checkpoint_interval:
        found.append(
            f"a checkpoint takes {job.checkpoint_s():.2f} s, more than its interval of "
            f"{settings.checkpoint_interval:g} s"
        )
    return found
