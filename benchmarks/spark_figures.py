"""Figures of a run, from Spark's progress reports and the file system's counts.

Times in milliseconds. Invariant: everything "per batch" is over exactly the batches measured.
"""

import math
import statistics
from collections.abc import Sequence
from typing import Any

Counts = dict[tuple[str, str], tuple[int, int]]
"""(kind of request, class of file) -> (requests, bytes)."""

LOG_CLASSES = ("changelog", "segment", "checksum")
"""What a commit of state writes; `checksum` only if Spark was told to write those files."""


def parse_counts(text: str) -> Counts:
    """Lines of `kind class count bytes`."""
    fields = [line.split(" ") for line in text.splitlines()]
    return {(kind, file): (int(count), int(size)) for kind, file, count, size in fields}


def difference(after: Counts, before: Counts) -> Counts:
    """What happened in between."""
    none = (0, 0)
    found = {
        key: (count - before.get(key, none)[0], size - before.get(key, none)[1])
        for key, (count, size) in after.items()
    }
    return {key: value for key, value in found.items() if value[0]}


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that is not below `share` of all."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def distribution(values: Sequence[float]) -> dict[str, float]:
    """Number, minimum, median, maximum and 99th percentile."""
    return {
        "n": len(values),
        "min": min(values),
        "median": statistics.median(values),
        "max": max(values),
        "p99": percentile(values, 0.99),
    }


def figures(progress: Sequence[Any], before: Counts, after: Counts) -> dict[str, Any]:
    """Of the batches in `progress`, and the requests between two counts."""
    batches = len(progress)
    durations = [p["durationMs"]["triggerExecution"] for p in progress]
    commits = [sum(o["commitTimeMs"] for o in p["stateOperators"]) for p in progress]
    counts = difference(after, before)
    batch = distribution(durations)
    return {
        "median_ms": batch["median"],
        "p99_ms": batch["p99"],
        "p99_over_median": round(batch["p99"] / batch["median"], 3),
        "batch_ms": batch,
        "commit_ms": distribution(commits),
        "phases_ms": _phases(progress),
        "log_puts": _per_batch(counts, batches, ("put",), LOG_CLASSES),
        "roll_ups": _per_batch(counts, batches, ("put",), ("roll-up",)),
        "requests": round(sum(c for c, _ in counts.values()) / batches, 2),
        "requests_by_kind": by_kind(counts, batches),
        "kb": _kilobytes(counts, batches),
        "state_rows": sum(o["numRowsTotal"] for o in progress[-1]["stateOperators"]),
        "batches_ms": durations,
    }


def by_kind(counts: Counts, batches: int) -> dict[str, dict[str, float]]:
    """Requests per batch: kind -> class of file -> number."""
    kinds: dict[str, dict[str, float]] = {}
    for (kind, file), (count, _) in sorted(counts.items()):
        kinds.setdefault(kind, {})[file] = round(count / batches, 3)
    return kinds


def plugin_metrics(text: str) -> dict[str, float]:
    """Lines of `name value`: counts since the start, medians of times and sizes."""
    fields = (line.split(" ") for line in text.splitlines())
    return {name: round(float(value), 1) for name, value in fields}


def _phases(progress: Sequence[Any]) -> dict[str, float]:
    names = sorted({name for p in progress for name in p["durationMs"]})
    return {n: statistics.median(p["durationMs"].get(n, 0) for p in progress) for n in names}


def _per_batch(counts: Counts, batches: int, kinds: Sequence[str], files: Sequence[str]) -> float:
    found = (c for (kind, file), (c, _) in counts.items() if kind in kinds and file in files)
    return round(sum(found) / batches, 3)


def _kilobytes(counts: Counts, batches: int) -> dict[str, float]:
    kinds = {kind for (kind, _), (_, size) in counts.items() if size}
    return {
        kind: round(sum(s for (k, _), (_, s) in counts.items() if k == kind) / batches / 1e3, 1)
        for kind in sorted(kinds)
    }
