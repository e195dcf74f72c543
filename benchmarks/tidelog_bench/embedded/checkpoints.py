"""The checkpoints of a run, from its manifests, the job's metrics and the store's writes, and their
figures.

Invariants: a checkpoint belongs to the measured time when its manifest became durable within it;
its needs are the whole objects that a restore of it reads, as the store keeps and bills whole ones.
1 MB is 10^6 bytes; percentiles are nearest ranks, so each is a value that occurred.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final

from tidelog.catalog.inventory import read_inventory
from tidelog.checkpoint.manifest import Checkpoint
from tidelog.runtime.checkpoints.completed import CompletedCheckpoint
from tidelog.runtime.config import JobConfig
from tidelog.runtime.status.distribution import percentile
from tidelog.storage import object_names
from tidelog_bench.embedded.run import Run

MB: Final = 1e6
_KEYED_TABLE: Final = JobConfig().table_of(keyed=True)
"""The kind of table that holds keyed state; those of sources are too small to matter."""
_SHARES: Final = {"p50_ms": 0.5, "p90_ms": 0.9, "p99_ms": 0.99, "p999_ms": 0.999, "max_ms": 1.0}


@dataclass(frozen=True)
class Completed:
    """A completed checkpoint; sizes in bytes."""

    entry: Checkpoint
    facts: CompletedCheckpoint
    """What the job's metrics say of it."""
    log_bytes: int
    """Bytes of the segments that the checkpoint names, and of its manifest ..."""
    table_bytes: int
    """... and of its descriptors and table files."""

    @property
    def incremental_bytes(self) -> int:
        """What it holds that the one before did not: log, and table files that are named first."""
        sizes = self.facts.sizes
        return sizes.log_incremental_bytes + sizes.materialized_incremental_bytes

    @property
    def barrier_delay_s(self) -> float:
        """Until the barrier reached the subtask that saw it last."""
        facts = [state.barrier for _, state in self.entry.subtasks() if state.barrier is not None]
        return max((fact.start_delay_ms for fact in facts), default=0) / 1e3


def checkpoints_of(run: Run) -> list[Completed]:
    """The checkpoints that completed in the measured time, oldest first."""
    begun, ended = run.measured
    inventory = asyncio.run(read_inventory(run.archive, every=True))
    writes = {write.name: write for write in run.store.writes}
    found = []
    for facts in run.incarnation.driver.metrics.recent:
        manifest = writes[object_names.checkpoint(facts.checkpoint)]
        if begun.mark.wall <= manifest.ended <= ended.mark.wall:
            entry = inventory.slots.checkpoints[facts.checkpoint]
            needs = {need.name for need in inventory.needs(entry)}
            log = sum(writes[n].size for n in needs if n.startswith(object_names.SEGMENTS))
            table = sum(writes[name].size for name in needs) - log
            found.append(Completed(entry, facts, manifest.size + log, table))
    return found


def durations(found: Sequence[Completed]) -> dict[str, float]:
    """How long they took, and where the time went in the median one."""
    seconds = [checkpoint.facts.seconds for checkpoint in found]
    phases = [checkpoint.facts.phases for checkpoint in found]
    barriers = [phase.start_delay_s + phase.alignment_s for phase in phases]
    return {
        "mean_ms": fmean(seconds) * 1e3,
        **{name: percentile(seconds, share) * 1e3 for name, share in _SHARES.items()},
        "barrier_p50_ms": percentile(barriers, 0.5) * 1e3,
        "upload_p50_ms": percentile([phase.durable_s for phase in phases], 0.5) * 1e3,
        "manifest_p50_ms": percentile([phase.manifest_s for phase in phases], 0.5) * 1e3,
    }


def sizes(found: Sequence[Completed]) -> dict[str, float]:
    """What each added, and all that each needs."""
    added = [checkpoint.incremental_bytes / MB for checkpoint in found]
    full = [(checkpoint.log_bytes + checkpoint.table_bytes) / MB for checkpoint in found]
    return {
        "incremental_mean_mb": fmean(added),
        "incremental_p50_mb": percentile(added, 0.5),
        "incremental_p99_mb": percentile(added, 0.99),
        "incremental_max_mb": max(added),
        "full_mean_mb": fmean(full),
        "full_peak_mb": max(full),
        "log_peak_mb": max(checkpoint.facts.sizes.log_full_bytes / MB for checkpoint in found),
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
