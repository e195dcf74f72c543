"""The checkpoints of a run, from its manifests, its metrics and the store's writes, and their
figures.

Invariants: a checkpoint belongs to the measured time when its manifest became durable within it;
its needs are the whole objects that a restore of it reads, as the store keeps and bills whole ones.
A figure that nothing was measured of is left out, never 0; 1 MB is 10^6 bytes; percentiles are
nearest ranks, so each is a value that occurred.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final

from tidelog.catalog.inventory import Inventory, read_inventory
from tidelog.checkpoint.manifest import Checkpoint
from tidelog.checkpoint.sizes import CheckpointSizes, checkpoint_sizes
from tidelog.runtime.config import JobConfig
from tidelog.runtime.status.distribution import percentile
from tidelog.storage import object_names
from tidelog_bench.embedded.run import Run
from tidelog_bench.store.modelled import Write

MB: Final = 1e6
_KEYED_TABLE: Final = JobConfig().table_of(keyed=True)
"""The kind of table that holds keyed state; those of sources are too small to matter."""
_SHARES: Final = {"p50_ms": 0.5, "p90_ms": 0.9, "p99_ms": 0.99, "p999_ms": 0.999, "max_ms": 1.0}


@dataclass(frozen=True)
class Phases:
    """Where the time of a checkpoint went; seconds that add up to its duration."""

    barrier_s: float
    """Seconds from the trigger until the last subtask had taken its snapshot."""
    upload_s: float
    """Seconds from there until the last part was durable."""
    manifest_s: float
    """Seconds from there until the slot was written."""


@dataclass(frozen=True)
class Completed:
    """A completed checkpoint; sizes in bytes."""

    entry: Checkpoint
    duration_s: float
    """From its trigger until then, as the job's own metrics have it."""
    sizes: CheckpointSizes
    phases: Phases
    log_bytes: int
    """Bytes of the segments that the checkpoint names, and of its manifest ..."""
    table_bytes: int
    """... and of its descriptors and table files."""

    @property
    def incremental_bytes(self) -> int:
        """What it holds that the one before did not: log, and table files that are named first."""
        return self.sizes.log_incremental_bytes + self.sizes.materialized_incremental_bytes

    @property
    def full_bytes(self) -> int:
        """All retained objects that it needs."""
        return self.log_bytes + self.table_bytes

    @property
    def barrier_delay_s(self) -> float:
        """Until the barrier reached the subtask that saw it last."""
        facts = [state.barrier for _, state in self.entry.subtasks() if state.barrier is not None]
        return max((fact.start_delay_ms for fact in facts), default=0) / 1e3


async def checkpoints_of(run: Run) -> list[Completed]:
    """The checkpoints that completed in the measured time, oldest first."""
    assert run.archive is not None
    begun, ended = run.measured
    inventory = await read_inventory(run.archive, every=True)
    writes = {write.name: write for write in run.store.writes}
    entries = list(inventory.slots.checkpoints.values())[: run.completed]
    durations = run.durations_s(0, run.completed)
    entries = entries[-len(durations) :]
    found = []
    previous: Checkpoint | None = None
    for entry, duration in zip(entries, durations, strict=True):
        durable = writes[object_names.checkpoint(entry.slot)].ended
        if begun.mark.wall <= durable <= ended.mark.wall:
            found.append(_completed(entry, previous, duration, inventory, writes))
        previous = entry
    return found


def _completed(
    entry: Checkpoint,
    previous: Checkpoint | None,
    duration_s: float,
    inventory: Inventory,
    writes: Mapping[str, Write],
) -> Completed:
    manifest = writes[object_names.checkpoint(entry.slot)]
    needs = {need.name for need in inventory.needs(entry)}
    log = {name for name in needs if name.startswith(object_names.SEGMENTS)}
    return Completed(
        entry=entry,
        duration_s=duration_s,
        sizes=checkpoint_sizes(
            entry, previous, lambda name: inventory.descriptors[name].shared_bytes
        ),
        phases=_phases(entry, duration_s, manifest.ended - manifest.started),
        log_bytes=manifest.size + _total(log, writes),
        table_bytes=_total(needs - log, writes),
    )


def _phases(entry: Checkpoint, duration_s: float, manifest_s: float) -> Phases:
    facts = [subtask.barrier for _, subtask in entry.subtasks() if subtask.barrier is not None]
    passed = max((fact.start_delay_ms + fact.alignment_ms for fact in facts), default=0) / 1e3
    # Manifests count whole milliseconds, and the writes are timed on another thread.
    manifest = min(manifest_s, duration_s)
    barrier = min(passed, duration_s - manifest)
    return Phases(barrier, duration_s - manifest - barrier, manifest)


def _total(names: Iterable[str], writes: Mapping[str, Write]) -> int:
    return sum(writes[name].size for name in names)


def durations(found: Sequence[Completed]) -> dict[str, float]:
    """How long they took, and where the time went in the median one."""
    if not found:
        return {}
    seconds = [checkpoint.duration_s for checkpoint in found]
    phases = [checkpoint.phases for checkpoint in found]
    return {
        "mean_ms": fmean(seconds) * 1e3,
        **{name: percentile(seconds, share) * 1e3 for name, share in _SHARES.items()},
        "barrier_p50_ms": percentile([phase.barrier_s for phase in phases], 0.5) * 1e3,
        "upload_p50_ms": percentile([phase.upload_s for phase in phases], 0.5) * 1e3,
        "manifest_p50_ms": percentile([phase.manifest_s for phase in phases], 0.5) * 1e3,
    }


def sizes(found: Sequence[Completed]) -> dict[str, float]:
    """What each added, and all that each needs."""
    if not found:
        return {}
    added = [checkpoint.incremental_bytes / MB for checkpoint in found]
    full = [checkpoint.full_bytes / MB for checkpoint in found]
    return {
        "incremental_mean_mb": fmean(added),
        "incremental_p50_mb": percentile(added, 0.5),
        "incremental_p99_mb": percentile(added, 0.99),
        "incremental_max_mb": max(added),
        "full_mean_mb": fmean(full),
        "full_peak_mb": max(full),
        "log_peak_mb": max(checkpoint.sizes.log_full_bytes / MB for checkpoint in found),
        "table_mean_mb": fmean(checkpoint.table_bytes / MB for checkpoint in found),
        "materializations": _materializations(found),
    }


def _materializations(found: Sequence[Completed]) -> int:
    """Materializations of keyed state that a checkpoint builds on and the first one does not."""
    named = [
        {
            state.materialization.descriptor
            for _, state in checkpoint.entry.subtasks()
            if state.materialization is not None and state.table == _KEYED_TABLE
        }
        for checkpoint in found
    ]
    return len(set().union(*named) - named[0])
