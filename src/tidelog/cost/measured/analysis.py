"""From a store to the report: which facts are gathered, in which order, and what its log costs.

Invariants: manifests are read before blocks, and blocks are compared with them, so a checkpoint
that a running job drops meanwhile is left out as a whole; nothing is written. Objects are counted
where no checkpoint is missing; how long one lives follows from how many are stored now (Little's
law), so before a job has dropped its first checkpoint the bill is too low, never too high.
"""

from collections.abc import Collection, Mapping, Sequence
from itertools import chain, pairwise
from statistics import fmean
from typing import Final

from tidelog.concurrency import Progress, no_progress
from tidelog.cost.measured.facts import MeasuredSnapshot, contiguous_runs, seconds
from tidelog.cost.measured.history import read_history, read_stored, without_dropped
from tidelog.cost.measured.log import block_facts, read_log, subtasks_of
from tidelog.cost.measured.operators import combine_of, has_windows, report_operators
from tidelog.cost.measured.report import OperatorReport, OverheadReport
from tidelog.cost.model.usage import MONTH_S, Flow, Reads, Usage
from tidelog.engines import Engine
from tidelog.errors import ConfigError
from tidelog.options.units import plural
from tidelog.spark.checkpoint.checkpoint import find_layout
from tidelog.storage import object_names
from tidelog.storage.port import ObjectStore

_COARSE: Final = 0.1


async def measure(
    store: ObjectStore, engine: Engine, progress: Progress = no_progress
) -> OverheadReport:
    """Measure the overhead of the job in a store.

    Raises ConfigError (the checkpoint of a Spark query), ObjectNotFoundError (no job), RestoreError
    (no checkpoint, or a Spark job that failed), CorruptObjectError and FormatVersionError, and what
    the store raises.
    """
    await _require_job(store)
    read, checkpoints = await read_history(store)
    newest = checkpoints[-1]
    object_sizes = await read_stored(store)
    windowed = [operator.id for operator in newest.operators if has_windows(operator.states)]
    logs, segment_errors = await read_log(engine, subtasks_of(checkpoints), progress, windowed)
    blocks = block_facts(logs)
    history = await without_dropped(store, read, blocks, segment_errors)
    operators = report_operators(history, newest.operators, blocks)
    runs = contiguous_runs(history)
    pairs = len(history) - len(runs)
    checkpoint_s = seconds(runs) / pairs if pairs else None
    dropped = len(read) - len(history)
    return OverheadReport(
        url=store.url,
        job=newest.job,
        engine=engine.name,
        checkpoints=len(history),
        first_checkpoint=history[0].slot,
        last_checkpoint=history[-1].slot,
        seconds=seconds(runs),
        checkpoint_s=checkpoint_s,
        operators=tuple(operators),
        combine=combine_of(
            runs, {operator.id for operator in newest.operators if operator.source_types}
        ),
        stored_bytes=sum(object_sizes.values()),
        table_bytes=sum(point.table_bytes for point in history[-1].points.values()),
        usage=log_usage(runs, object_sizes),
        notes=tuple(_notes(runs, operators, checkpoint_s, dropped)),
    )


async def _require_job(store: ObjectStore) -> None:
    if await find_layout(store) == "query":
        raise ConfigError(
            f"location {store.url}",
            expected="the store of a tidelog job",
            found="the checkpoint of a Spark query, which has no materializations",
            action="use `tidelog spark checkpoints URL` for what its log holds",
        )


def _notes(
    runs: Sequence[Sequence[MeasuredSnapshot]],
    operators: Collection[OperatorReport],
    checkpoint_s: float | None,
    dropped: int,
) -> list[str]:
    notes = []
    if dropped:
        notes.append(f"left out: {plural(dropped, 'checkpoint')} that the job dropped meanwhile")
    for before, after in pairwise(runs):
        notes.append(_border(before[-1], after[0]))
    shortest = min((o.interval_s for o in operators if o.interval_s is not None), default=None)
    if shortest is not None and checkpoint_s is not None and checkpoint_s > _COARSE * shortest:
        notes.append(
            f"a checkpoint every {checkpoint_s:.1f} s shows the log at steps of "
            f"{checkpoint_s / shortest:.0%} of the shortest interval: a peak may be higher by that"
        )
    return notes


def _border(before: MeasuredSnapshot, after: MeasuredSnapshot) -> str:
    """What lies between two runs."""
    if after.final:
        return f"checkpoint {after.slot} ended the job: what its end of data changed is not counted"
    return (
        f"between {before.slot} and {after.slot} checkpoints are missing, or the job was "
        "restarted: nothing is measured across"
    )


def log_usage(
    runs: Sequence[Sequence[MeasuredSnapshot]], object_sizes: Mapping[str, int]
) -> Usage | None:
    """Segments and manifests as flows of objects, and checkpoints' LISTs; None without a time."""
    span = seconds(runs)
    if not span:
        return None
    manifests = [snapshot.manifest_bytes for snapshot in chain.from_iterable(runs)]
    segments = [
        size for name, size in object_sizes.items() if name.startswith(object_names.SEGMENTS)
    ]
    checkpoints_per_s = (len(manifests) - len(runs)) / span
    flows = []
    for kind, per_s, sizes in (
        ("segment", _segments_per_s(runs, span, segments), segments),
        ("manifest", checkpoints_per_s, manifests),
    ):
        if per_s and sizes:
            flows.append(Flow(kind, per_s, fmean(sizes), len(sizes) / per_s))
    return Usage(tuple(flows), Reads(lists=checkpoints_per_s))


def _segments_per_s(
    runs: Sequence[Sequence[MeasuredSnapshot]], span: float, sizes: Sequence[int]
) -> float:
    """How many segments a slow log writes shows only in the bytes that its segments come to: all
    that is logged is in one in the end.
    """
    written = _segments_written(runs)
    if written or not sizes:
        return written / span
    changes = in_log = log_bytes = 0
    for run in runs:
        for who, point in run[-1].points.items():
            changes += point.seqno - run[0].points.get(who, point).seqno
    for point in runs[-1][-1].points.values():
        in_log += point.seqno - point.upto
        log_bytes += point.log_bytes
    if not changes or not in_log:  # nothing is written any more: what lies there stays
        return len(sizes) / MONTH_S
    return changes * log_bytes / in_log / span / fmean(sizes)


def _segments_written(runs: Sequence[Sequence[MeasuredSnapshot]]) -> int:
    """Segments that a checkpoint of a run names and none before it."""
    written = 0
    for run in runs:
        segments = set(run[0].segments)
        for _, snapshot in pairwise(run):
            written += len(snapshot.segments - segments)
            segments |= snapshot.segments
    return written
