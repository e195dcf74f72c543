"""How long a Spark query takes to go on after a restart, with each state store.

Invariant: a checkpoint is written once for all pairs, without delays, and a copy of it elsewhere is
read, so nothing of it is in a cache of Spark or the plug-in; what stays is that classes are loaded.
"""

import dataclasses
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tidelog.errors import TidelogError
from tidelog_bench.embedded.meter import CLOCK, size_mb
from tidelog_bench.experiment import Cell, Experiment, Figure, Reading, Setting, Size, Trial
from tidelog_bench.spark.batches import by_kind, difference, requests, transferred
from tidelog_bench.spark.job import QUICK_JVM, RATIOS, STORES, Job, missing

_MAINTENANCE_MS: Final = 500
"""While a checkpoint is written; afterwards there is time for two, so snapshots are uploaded."""


def cells(size: Size) -> Sequence[Cell]:
    """One small cell; one of 32 partitions; or both queries with up to 200 partitions.

    The last batch 28 writes version 29: the last snapshot is of version 20, and nine changelogs
    are replayed; after batch 18 as many, after version 10. In the small cell they are two, of
    version 13.
    """
    if size is Size.QUICK:
        return [_cell("aggregation", 4, 12, expected_s=18, jvm=QUICK_JVM)]
    if size is Size.STANDARD:
        return [_cell("aggregation", 32, 18, expected_s=8)]
    return [
        _cell(query, partitions, 28, expected_s=20 + partitions)
        for query in ("aggregation", "join")
        for partitions in (8, 64, 200)
    ]


def _cell(query: str, partitions: int, last: int, *, expected_s: float, jvm: str = "") -> Cell:
    settings: dict[str, Setting] = {
        "query": query,
        "partitions": partitions,
        "last_batch": last,
        "latency_ms": 30,
        "mb_per_s": 50,
        "maintenance_ms": 20_000,
        "jvm": jvm,
    }
    return Cell(settings, STORES, expected_s, expected_s)


def measure(trial: Trial) -> Reading:
    """Go on with a new application from a copy of the checkpoint that the first trial writes."""
    job = trial.read(Job, store=trial.variant)
    name, last = str(trial.settings["query"]), int(trial.settings["last_batch"] or 0)
    written = trial.kept / "written"
    first = not written.exists()
    if first:
        _write(job, name, written, last, trial.directory / "first")

    def restart(directory: Path) -> Reading:
        shutil.copytree(written, directory / "copy")
        return _go_on(job, name, directory / "copy", last + 1, directory / "application")

    if first:
        # The first one in a JVM compiles what the others use.
        restart(trial.directory / "warm-up")
    return restart(trial.directory / "restart")


def _write(job: Job, name: str, checkpoint: Path, last: int, directory: Path) -> None:
    from tidelog_bench.spark.application import application  # noqa: PLC0415  (needs pyspark)

    # No delays, and below the plug-in snapshots as often as without it: equally long replays.
    plain = dataclasses.replace(
        job, latency_ms=0, maintenance_ms=_MAINTENANCE_MS, snapshot_interval_ms=0
    )
    with application(plain, directory) as first, first.query(name, checkpoint, last) as query:
        first.await_batch(query, last)
        first.await_batch(query, last + 1, timeout_s=2 * _MAINTENANCE_MS / 1e3)  # never comes


def _go_on(job: Job, name: str, checkpoint: Path, batch: int, directory: Path) -> Reading:
    from tidelog_bench.spark.application import application  # noqa: PLC0415  (needs pyspark)

    stored_mb = size_mb(checkpoint)
    with application(job, directory) as second:
        before, began = second.counts_now(), CLOCK.monotonic()
        with second.query(name, checkpoint, batch) as query:
            second.await_batch(query, batch)
            seconds = CLOCK.monotonic() - began
            reported = query.recentProgress
        counts = difference(second.counts_at(batch), before)
    if reported[0]["batchId"] != batch:
        raise TidelogError(
            "the restart of a query",
            expected=f"batch {batch} as its first",
            found=f"batch {reported[0]['batchId']}",
            action="the checkpoint is not the one that was written; report it as a defect",
        )
    figures = {
        "restore_ms": round(seconds * 1e3, 1),
        "first_batch_ms": float(reported[0]["durationMs"]["triggerExecution"]),
        "requests": float(requests(counts)),
        "downloaded_mb": round(transferred(counts, "get") / 1e6, 3),
        "stored_mb": stored_mb,
    }
    notes = {"requests": by_kind(counts, 1), "versions": second.versions}
    return Reading(figures, notes)


EXPERIMENT: Final = Experiment(
    name="spark-restore",
    title="Restart of a Spark query by state store",
    question="How soon does a query commit again after a restart, and what does it read?",
    group="spark",
    cells=cells,
    measure=measure,
    figures=(
        Figure("restore_ms", "start of the query to its first commit", "ms"),
        Figure("first_batch_ms", "first batch", "ms"),
        Figure("requests", "requests until then", "requests"),
        Figure("downloaded_mb", "read until then", "MB"),
        Figure("stored_mb", "size of the checkpoint", "MB", better="neither"),
    ),
    ratios=RATIOS,
    missing=missing,
    also=("native/spark-state-store/src/main", "native/spark-benchmark/src/main"),
    resident=True,
)
