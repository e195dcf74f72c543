"""The checkpoints of a run, from its manifests, its metrics and the store's writes.

Invariants: a checkpoint belongs to the measured time when its manifest became durable within it;
its needs are the whole objects that a restore of it reads, as the store keeps and bills whole ones.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from tidelog.catalog.inventory import Inventory, read_inventory
from tidelog.checkpoint.manifest import Checkpoint
from tidelog.checkpoint.sizes import CheckpointSizes, checkpoint_sizes
from tidelog.runtime.config import JobConfig
from tidelog.storage import object_names
from tidelog_bench.embedded.running import Running
from tidelog_bench.store.modelled import Write

KEYED_TABLE: Final = JobConfig().table_of(keyed=True)
"""The kind of table that holds keyed state; those of sources are too small to matter."""


@dataclass(frozen=True)
class Taken:
    """A completed checkpoint; sizes in bytes."""

    entry: Checkpoint
    at_s: float
    """When its manifest was durable, since the measured time began."""
    duration_s: float
    """From its trigger until then, as the job's own metrics have it."""
    sizes: CheckpointSizes
    phases: "Phases"
    log_bytes: int
    """Bytes of the segments that the checkpoint names, and of its manifest ..."""
    table_bytes: int
    """... and of its descriptors and table files."""

    @property
    def incremental_bytes(self) -> int:
        """What it holds that the one before did not: log, and table files that are named first."""
        sizes = self.sizes
        return sizes.log_incremental_bytes + sizes.materialized_incremental_bytes

    @property
    def full_bytes(self) -> int:
        """All retained objects that it needs."""
        return self.log_bytes + self.table_bytes


@dataclass(frozen=True)
class Phases:
    """Where the time of a checkpoint went; seconds that add up to its duration."""

    barrier_s: float
    """Seconds from the trigger until the last subtask had taken its snapshot."""
    upload_s: float
    """Seconds from there until the last part was durable."""
    manifest_s: float
    """Seconds from there until the slot was written."""


async def taken(running: Running) -> list[Taken]:
    """The checkpoints that completed in the measured time, oldest first."""
    assert running.archive is not None and running.runner.incarnation is not None
    start, end = running.stages.start, running.stages.end
    assert start is not None and end is not None
    # The archive keeps what the job deletes, old checkpoints too.
    inventory = await read_inventory(running.archive.inner, every=True)
    writes = {write.name: write for write in running.store.writes}
    metrics = running.runner.incarnation.driver.metrics
    entries = list(inventory.slots.checkpoints.values())[: metrics.completed]
    # The metrics have the durations of the newest ones only.
    durations = metrics.durations_s[-len(entries) :]
    entries = entries[-len(durations) :]
    found = []
    previous: Checkpoint | None = None
    for entry, duration in zip(entries, durations, strict=True):
        durable = writes[object_names.checkpoint(entry.slot)].ended
        if start.wall <= durable <= end.wall:
            at = durable - start.wall
            found.append(_taken(entry, previous, at, duration, inventory, writes))
        previous = entry
    return found


def _taken(
    entry: Checkpoint,
    previous: Checkpoint | None,
    at_s: float,
    duration_s: float,
    inventory: Inventory,
    writes: Mapping[str, Write],
) -> Taken:
    manifest = writes[object_names.checkpoint(entry.slot)]
    needs = {need.name for need in inventory.needs(entry)}
    log = {name for name in needs if name.startswith(object_names.SEGMENTS)}
    return Taken(
        entry=entry,
        at_s=at_s,
        duration_s=duration_s,
        sizes=checkpoint_sizes(entry, previous, _shared(inventory)),
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


def _shared(inventory: Inventory) -> Callable[[str], Mapping[str, int]]:
    return lambda descriptor: inventory.descriptors[descriptor].shared_bytes
