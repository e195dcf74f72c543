"""The batches of a query that are measured, and their figures.

Invariants: everything "per batch" is over exactly these batches; the difference of two counts is
what happened between them, nothing else; nothing here needs Spark.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from tidelog.runtime.status.distribution import percentile
from tidelog_bench.experiment import Reading
from tidelog_bench.store import Traffic, daily

Counts = Mapping[tuple[str, str], "Sum"]
"""(kind of request, class of file) -> how many, and their bytes."""


class Sum(NamedTuple):
    """Requests of one kind to one class of files."""

    requests: int
    bytes: int


_NONE = Sum(0, 0)


def parse_counts(text: str) -> Counts:
    """Lines of `kind class count bytes`."""
    fields = [line.split(" ") for line in text.splitlines()]
    return {(kind, file): Sum(int(count), int(size)) for kind, file, count, size in fields}


def difference(after: Counts, before: Counts) -> Counts:
    found = {}
    for key, total in after.items():
        then = before.get(key, _NONE)
        if total.requests > then.requests:
            found[key] = Sum(total.requests - then.requests, total.bytes - then.bytes)
    return found


def requests(counts: Counts, kind: str | None = None) -> int:
    return sum(found.requests for (of, _), found in counts.items() if kind in (None, of))


def transferred(counts: Counts, kind: str) -> int:
    return sum(found.bytes for (of, _), found in counts.items() if of == kind)


def by_kind(counts: Counts, batches: int) -> dict[str, dict[str, float]]:
    """Requests per batch: kind -> class of file -> number."""
    kinds: dict[str, dict[str, float]] = {}
    for (kind, file), found in sorted(counts.items()):
        kinds.setdefault(kind, {})[file] = round(found.requests / batches, 3)
    return kinds


Progress = Mapping[str, Any]
"""What Spark reports of a batch."""

PUT: Final = "put"


@dataclass(frozen=True, slots=True)
class BatchWindow:
    """What was measured of consecutive micro-batches of one query."""

    progress: Sequence[Progress]
    counts: Counts
    """The requests of all batches together."""
    cpu_ms: float
    """Processor time of the JVM, for all of them."""

    def reading(self) -> Reading:
        """Durations, and what the batches took from the store and the processor; as notes requests
        by kind and class of file, and where the time of a batch went.
        """
        batches, counts = len(self.progress), self.counts
        durations = [float(one["durationMs"]["triggerExecution"]) for one in self.progress]
        figures = {
            "p50_ms": statistics.median(durations),
            "p99_ms": percentile(durations, 0.99),
            "p99_over_p50": percentile(durations, 0.99) / statistics.median(durations),
            "commit_ms": statistics.median(map(_commit_ms, self.progress)),
            **per_batch(counts, batches),
            "uploaded_kb_per_batch": round(transferred(counts, PUT) / batches / 1e3, 3),
            "cpu_ms_per_batch": round(self.cpu_ms / batches, 1),
            "batches": float(batches),
        }
        notes = {
            "requests_per_batch": by_kind(counts, batches),
            "phases_ms": _phases(self.progress),
            "state_rows": sum(o["numRowsTotal"] for o in self.progress[-1]["stateOperators"]),
        }
        return Reading(figures, notes)


def per_batch(counts: Counts, batches: int) -> dict[str, float]:
    return {
        "requests_per_batch": round(requests(counts) / batches, 3),
        "objects_per_batch": round(requests(counts, PUT) / batches, 3),
        "dollars_per_day": round(dollars(counts, batches), 2),
    }


def dollars(counts: Counts, batches: int) -> float:
    """What these requests cost in a day of a batch a second, at the list prices of S3.

    Stores that make slower batches would seem cheaper at their own pace. What is stored is not in
    it: all stores keep the same state, and a hundred batches of changes.
    """
    kinds = {kind for kind, _ in counts}
    return daily(
        Traffic(
            seconds=float(batches),
            requests={kind: requests(counts, kind) for kind in kinds},
            uploaded_bytes=transferred(counts, PUT),
            downloaded_bytes=transferred(counts, "get"),
        )
    ).total


def _commit_ms(progress: Progress) -> float:
    """Within StateStore.commit, summed over the tasks of a batch."""
    return float(sum(operator["commitTimeMs"] for operator in progress["stateOperators"]))


def _phases(progress: Sequence[Progress]) -> dict[str, float]:
    names = sorted({name for one in progress for name in one["durationMs"]})
    return {
        name: statistics.median(one["durationMs"].get(name, 0) for one in progress)
        for name in names
    }
