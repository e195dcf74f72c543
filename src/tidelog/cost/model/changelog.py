"""The estimate with the changelog on: log segments, manifests, and tables uploaded now and then.

Invariant: figures are those of the whole job; a process is one job with its own manifests.
"""

from typing import Final

from tidelog.cost.model.estimate import Estimate, LogEstimate, Strategy
from tidelog.cost.model.formulas import log_peak_bytes
from tidelog.cost.model.lifecycle import Retention, log_age_s, replay_age_s, segment_life_s
from tidelog.cost.model.manifest_size import Numbers, descriptor_bytes, manifest_sizes
from tidelog.cost.model.materializing import Materializing, Trigger, materializing
from tidelog.cost.model.restoring import Fetch, Objects, reads, restore_s
from tidelog.cost.model.settings import Settings
from tidelog.cost.model.tables import TableRules
from tidelog.cost.model.uploads import LogCycle, log_cycle
from tidelog.cost.model.usage import Flow, Usage
from tidelog.cost.model.workload import Workload

_SOURCE_ROWS_BYTES: Final = 256
"""The table of a source: it is small, so it lies within its descriptor."""


def estimate_changelog(
    workload: Workload, settings: Settings, rules: TableRules | None = None
) -> Estimate:
    """Estimate a job that keeps a changelog."""
    rules = rules or TableRules()
    cycle_s = settings.checkpoint_interval
    log = log_cycle(workload, settings, cycle_s)
    tables = materializing(workload, settings, rules, log, cycle_s)
    manifest = _manifest_bytes(settings, log, tables, cycle_s)
    checkpoint_s = _checkpoint_s(settings, log, manifest)
    retention = Retention(settings.retain, cycle_s, checkpoint_s)
    flows = _flows(settings, rules, log, tables, retention, manifest)
    fetch = _fetch(settings, rules, log, tables, retention, manifest)
    uploaded = sum(flow.bytes_per_s for flow in flows) / settings.processes
    return Estimate(
        strategy=Strategy.CHANGELOG,
        usage=Usage(flows, reads(fetch, settings, cycle_s)),
        cycle_s=cycle_s,
        checkpoint_s=checkpoint_s,
        restore_s=restore_s(fetch, settings),
        replay_counted=True,
        materialize_s=tables.period,
        trigger=tables.trigger,
        log=_log_estimate(settings, log, tables, retention),
        warnings=tuple(_warnings(settings, tables, checkpoint_s, uploaded)),
    )


def _manifest_bytes(
    settings: Settings, log: LogCycle, tables: Materializing, cycle_s: float
) -> float:
    """An average manifest of one process; log ranges make it grow with the log's age."""
    keyed, sources = settings.keyed_per_process, settings.sources_per_process
    segment_s = cycle_s / log.segments
    # A range whose segment lies across the materialization is kept whole.
    age = tables.period / 2 + tables.upload + segment_s / 2
    ranges = keyed * log.presence * age / segment_s
    ranges += sources * age / max(segment_s, min(cycle_s, settings.flush.max_age))
    cycles = settings.running_s / cycle_s
    segment = log.segment_bytes / log.segments
    numbers = Numbers.of(cycles * log.changes / keyed, cycles, segment, segment / keyed)
    return manifest_sizes(numbers).of(keyed + sources, ranges, log.inline_bytes)


def _checkpoint_s(settings: Settings, log: LogCycle, manifest_bytes: float) -> float:
    """The log up to the barrier, the manifest, and the LIST that shows no newer start."""
    link = settings.link
    return log.waited_s + 2 * link.latency_s + manifest_bytes / link.bytes_per_s


def _flows(
    settings: Settings,
    rules: TableRules,
    log: LogCycle,
    tables: Materializing,
    retention: Retention,
    manifest: float,
) -> tuple[Flow, ...]:
    processes, sources = settings.processes, settings.sources_per_process * settings.processes
    keyed, cycle_s = settings.parallelism, retention.cycle_s
    table = tables.table
    life = _segment_life_s(settings, log, tables, retention)
    interval = settings.materialize.interval
    return (
        Flow("segment", processes * log.segments / cycle_s, log.segment_bytes / log.segments, life),
        Flow("manifest", processes / cycle_s, manifest, retention.slot_s),
        # Files live as long as their rows: what comes in goes out, and all the others stay.
        Flow(
            "table file",
            keyed * table.new_files / tables.period,
            table.new_bytes / table.new_files,
            _file_life_s(tables, retention),
        ),
        Flow(
            "descriptor",
            keyed / tables.period,
            descriptor_bytes(table.stored_files, rules.private_bytes),
            tables.period + retention.mean_s,
        ),
        Flow(
            "source descriptor",
            sources / interval,
            descriptor_bytes(0, _SOURCE_ROWS_BYTES),
            interval + retention.mean_s,
        ),
    )


def _segment_life_s(
    settings: Settings, log: LogCycle, tables: Materializing, retention: Retention
) -> float:
    keyed, sources = settings.keyed_per_process, settings.sources_per_process
    alone = segment_life_s(tables.period, keyed, sources, tables.upload, retention)
    shared = segment_life_s(tables.period, keyed + sources, 0, tables.upload, retention)
    return log.shared * shared + (1 - log.shared) * alone


def _file_life_s(tables: Materializing, retention: Retention) -> float:
    """Mean life of a table file, from the bytes that are stored of all of them."""
    table = tables.table
    in_use = table.stored_bytes / table.new_bytes * tables.period
    return in_use + tables.upload / 2 + retention.mean_s


def _fetch(
    settings: Settings,
    rules: TableRules,
    log: LogCycle,
    tables: Materializing,
    retention: Retention,
    manifest: float,
) -> Fetch:
    """What a restore of one process reads, at most."""
    keyed, sources = settings.keyed_per_process, settings.sources_per_process
    age = replay_age_s(tables.longest, keyed, tables.upload)
    cycles, older_s = age / retention.cycle_s, (settings.retain - 1) * retention.cycle_s
    table = tables.table
    own = descriptor_bytes(table.stored_files, rules.private_bytes)
    small = descriptor_bytes(0, _SOURCE_ROWS_BYTES)
    # What the older checkpoints name besides the newest.
    all_own = keyed * (1 + older_s / tables.period)
    all_small = sources * (1 + older_s / settings.materialize.interval)
    return Fetch(
        slots=Objects(settings.retain, settings.retain * manifest),
        described=Objects(all_own + all_small, all_own * own + all_small * small),
        descriptors=Objects(keyed + sources, keyed * own + sources * small),
        files=Objects(keyed * table.stored_files, keyed * table.stored_bytes),
        segments=Objects(cycles * log.segments, cycles * log.segment_bytes),
        changes=cycles * log.changes,
    )


def _log_estimate(
    settings: Settings, log: LogCycle, tables: Materializing, retention: Retention
) -> LogEstimate:
    processes, cycle_s = settings.processes, retention.cycle_s
    changes_per_s = processes * log.changes / cycle_s
    bytes_per_s = processes * log.segment_bytes / cycle_s
    replayed = replay_age_s(tables.longest, settings.keyed_per_process, tables.upload)
    return LogEstimate(
        combine=log.combine,
        changes_per_s=changes_per_s,
        bytes_per_s=bytes_per_s,
        peak_bytes=bytes_per_s * log_age_s(tables.longest, tables.upload, retention),
        rule_of_thumb_bytes=log_peak_bytes(
            changes_per_s, bytes_per_s / changes_per_s, settings.materialize.interval
        ),
        replay_changes=changes_per_s * replayed,
    )


def _warnings(
    settings: Settings, tables: Materializing, checkpoint_s: float, uploaded_per_s: float
) -> list[str]:
    found = []
    if tables.trigger is Trigger.BANDWIDTH:
        found.append(
            "tables cannot be uploaded within the materialization interval of "
            f"{settings.materialize.interval:g} s over this link: it takes {tables.period:.0f} s"
        )
    elif tables.trigger is not Trigger.INTERVAL:
        found.append(
            f"tables are materialized every {tables.period:.1f} s, before their interval of "
            f"{settings.materialize.interval:g} s: {tables.trigger}"
        )
    if uploaded_per_s > settings.link.bytes_per_s:
        found.append(
            f"the link is too slow: {uploaded_per_s / 1e6:.1f} MB a second have to go through "
            f"{settings.link.bytes_per_s / 1e6:.1f}, so writers will wait"
        )
    if checkpoint_s > settings.checkpoint_interval:
        found.append(
            f"a checkpoint takes {checkpoint_s:.2f} s, more than its interval of "
            f"{settings.checkpoint_interval:g} s"
        )
    return found
