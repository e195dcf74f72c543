"""The estimate with the changelog off: every checkpoint uploads the new files of all tables.

Invariant: a checkpoint that takes longer than its interval delays the next one, so the interval is
what uploads make of it.
"""

from tidelog.cost.model.estimate import Estimate, Strategy
from tidelog.cost.model.flushes import flushes
from tidelog.cost.model.lifecycle import Retention
from tidelog.cost.model.manifest_size import Numbers, descriptor_bytes, manifest_sizes
from tidelog.cost.model.restoring import Fetch, Objects, reads, restore_s, side_by_side_s
from tidelog.cost.model.settings import Settings
from tidelog.cost.model.tables import Snapshot, TableRules, snapshot
from tidelog.cost.model.usage import Flow, Usage
from tidelog.cost.model.workload import Workload
from tidelog.materialize.pacing import TRANSFERS

_ROUNDS = 30
"""The interval and what is uploaded in it depend on each other: so many rounds settle them."""
_SOURCE_ROWS_BYTES = 256


def estimate_incremental(
    workload: Workload, settings: Settings, rules: TableRules | None = None
) -> Estimate:
    """Estimate a job without changelog."""
    # No row is written between the two flushes of such a snapshot, so there is one.
    rules = rules or TableRules(flushes_per_snapshot=1)
    cycle_s = settings.checkpoint_interval
    for _ in range(_ROUNDS):
        changes_per_s = _changes_per_s(workload, settings, cycle_s)
        table = snapshot(workload, settings.parallelism, rules, changes_per_s, cycle_s)
        checkpoint_s = _checkpoint_s(settings, rules, table)
        cycle_s = max(settings.checkpoint_interval, checkpoint_s)
    cycles = settings.running_s / cycle_s
    numbers = Numbers.of(changes_per_s * settings.running_s / settings.parallelism, cycles, 0, 0)
    keyed, sources = settings.keyed_per_process, settings.sources_per_process
    manifest = manifest_sizes(numbers).of(keyed + sources, 0, 0)
    descriptor = descriptor_bytes(table.stored_files, rules.private_bytes)
    descriptors = _descriptors(settings, descriptor)
    retention = Retention(settings.retain, cycle_s, checkpoint_s)
    retained = settings.retain
    fetch = Fetch(
        slots=Objects(retained, retained * manifest),
        described=Objects(retained * descriptors.count, retained * descriptors.bytes),
        descriptors=descriptors,
        files=Objects(keyed * table.stored_files, keyed * table.stored_bytes),
        segments=Objects(0.0, 0.0),
        changes=0.0,
    )
    return Estimate(
        strategy=Strategy.INCREMENTAL,
        usage=Usage(
            _flows(settings, table, retention, manifest, descriptor),
            reads(fetch, settings, cycle_s),
        ),
        cycle_s=cycle_s,
        checkpoint_s=checkpoint_s,
        restore_s=restore_s(fetch, settings),
        replay_counted=True,
        warnings=_warnings(settings, checkpoint_s),
    )


def _changes_per_s(workload: Workload, settings: Settings, cycle_s: float) -> float:
    found = flushes(workload, settings.parallelism, settings.flush, cycle_s)
    return sum(flush.rows * flush.times for flush in found) / cycle_s


def _flows(
    settings: Settings, table: Snapshot, retention: Retention, manifest: float, descriptor: float
) -> tuple[Flow, ...]:
    cycle_s, keyed = retention.cycle_s, settings.parallelism
    sources = settings.sources_per_process * settings.processes
    small = descriptor_bytes(0, _SOURCE_ROWS_BYTES)
    in_use = table.stored_bytes / table.new_bytes * cycle_s
    return (
        Flow("manifest", settings.processes / cycle_s, manifest, retention.slot_s),
        Flow(
            "table file",
            keyed * table.new_files / cycle_s,
            table.new_bytes / table.new_files,
            # Its last checkpoint is the one before the snapshot that does without it.
            in_use + retention.slot_s - cycle_s,
        ),
        Flow("descriptor", keyed / cycle_s, descriptor, retention.slot_s),
        Flow("source descriptor", sources / cycle_s, small, retention.slot_s),
    )


def _checkpoint_s(settings: Settings, rules: TableRules, table: Snapshot) -> float:
    """Files, descriptors, the manifest, and the LIST that shows no newer start."""
    link, keyed = settings.link, settings.keyed_per_process
    files = Objects(keyed * table.new_files, keyed * table.new_bytes)
    # Each is written when its table's files are there: all of them at about the same time.
    written = _descriptors(settings, descriptor_bytes(table.stored_files, rules.private_bytes))
    return (
        side_by_side_s(files, TRANSFERS, link)
        + link.latency_s
        + written.bytes / link.bytes_per_s
        + 2 * link.latency_s
    )


def _descriptors(settings: Settings, keyed_bytes: float) -> Objects:
    """The descriptors of one checkpoint of one process."""
    keyed, sources = settings.keyed_per_process, settings.sources_per_process
    small = descriptor_bytes(0, _SOURCE_ROWS_BYTES)
    return Objects(keyed + sources, keyed * keyed_bytes + sources * small)


def _warnings(settings: Settings, checkpoint_s: float) -> tuple[str, ...]:
    if checkpoint_s <= settings.checkpoint_interval:
        return ()
    return (
        f"a checkpoint takes {checkpoint_s:.1f} s, more than its interval of "
        f"{settings.checkpoint_interval:g} s",
    )
