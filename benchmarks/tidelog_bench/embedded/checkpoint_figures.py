"""Figures, curves and notes of the checkpoints of a run.

Invariants: a figure that nothing was measured of is left out, never 0; 1 MB is 10^6 bytes;
percentiles are nearest ranks, so each is a value that occurred.
"""

from collections.abc import Sequence
from statistics import fmean
from typing import Any, Final

from tidelog.runtime.status.distribution import percentile
from tidelog_bench.embedded.checkpoints import KEYED_TABLE, Taken
from tidelog_bench.measurement import Points, downsampled

MB: Final = 1e6
_SHARES: Final = {"p50_ms": 0.5, "p90_ms": 0.9, "p99_ms": 0.99, "p999_ms": 0.999, "max_ms": 1.0}
_SLOWEST: Final = 5


def counts(found: Sequence[Taken], seconds: float) -> dict[str, float]:
    """How many completed in the measured time."""
    return {"checkpoints": len(found), "checkpoints_per_minute": len(found) / seconds * 60}


def durations(found: Sequence[Taken]) -> dict[str, float]:
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


def sizes(found: Sequence[Taken]) -> dict[str, float]:
    """What each added, and all that each needs."""
    if not found:
        return {}
    added = [checkpoint.incremental_bytes / MB for checkpoint in found]
    full = [checkpoint.full_bytes / MB for checkpoint in found]
    log = [checkpoint.sizes.log_full_bytes / MB for checkpoint in found]
    return {
        "incremental_mean_mb": fmean(added),
        "incremental_p50_mb": percentile(added, 0.5),
        "incremental_p99_mb": percentile(added, 0.99),
        "incremental_max_mb": max(added),
        "full_mean_mb": fmean(full),
        "full_peak_mb": max(full),
        "full_peak_over_mean": max(full) / fmean(full),
        "log_peak_mb": max(log),
        "table_mean_mb": fmean(checkpoint.table_bytes / MB for checkpoint in found),
        "materializations": _materializations(found),
    }


def _materializations(found: Sequence[Taken]) -> int:
    """Materializations of keyed state that a checkpoint builds on and the first one does not."""
    named = [
        {
            state.materialization.descriptor
            for _, state in checkpoint.entry.subtasks()
            if state.materialization is not None and state.table == KEYED_TABLE
        }
        for checkpoint in found
    ]
    return len(set().union(*named) - named[0])


def curves(found: Sequence[Taken]) -> dict[str, Points]:
    """Over time: durations, what each added, all that each needs."""
    if not found:
        return {}
    return {
        "duration_ms": _curve([(c.at_s, c.duration_s * 1e3) for c in found]),
        "incremental_mb": _curve([(c.at_s, c.incremental_bytes / MB) for c in found]),
        "full_mb": _curve([(c.at_s, c.full_bytes / MB) for c in found]),
        "log_mb": _curve([(c.at_s, c.sizes.log_full_bytes / MB) for c in found]),
        "table_mb": _curve([(c.at_s, c.table_bytes / MB) for c in found]),
    }


def slowest(found: Sequence[Taken]) -> list[dict[str, Any]]:
    """The slowest ones and their phases, for the notes."""
    worst = sorted(found, key=lambda checkpoint: checkpoint.duration_s, reverse=True)[:_SLOWEST]
    return [
        {
            "at_s": round(checkpoint.at_s, 2),
            "ms": round(checkpoint.duration_s * 1e3, 1),
            "barrier_ms": round(checkpoint.phases.barrier_s * 1e3, 1),
            "upload_ms": round(checkpoint.phases.upload_s * 1e3, 1),
            "manifest_ms": round(checkpoint.phases.manifest_s * 1e3, 1),
            "incremental_mb": round(checkpoint.incremental_bytes / MB, 3),
        }
        for checkpoint in worst
    ]


def _curve(points: Sequence[tuple[float, float]]) -> Points:
    return downsampled([(round(at, 3), round(value, 4)) for at, value in points])
