"""From a store to the report: which facts are gathered, in which order.

Invariants: manifests are read before blocks, and blocks are compared with them, so a checkpoint
that a running job drops meanwhile is left out as a whole; nothing is written.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from tidelog.checkpoint.bounded import Progress, no_progress
from tidelog.checkpoint.manifest import Checkpoint
from tidelog.errors import ConfigError
from tidelog.overhead.combining import combine_of
from tidelog.overhead.cost import log_usage
from tidelog.overhead.engine import Engine
from tidelog.overhead.facts import History, Snapshot, Stored
from tidelog.overhead.history import read_history, read_stored, without_dropped
from tidelog.overhead.operators import report_operators
from tidelog.overhead.report import Combine, OperatorReport, Report
from tidelog.overhead.stretches import seconds, stretches
from tidelog.overhead.windows import Span, fullest_logs, window_states, with_windows
from tidelog.spark.source.layout import find_layout
from tidelog.storage.port import ObjectStore

_COARSE: Final = 0.1


@dataclass(frozen=True, slots=True)
class Question:
    """What the user tells besides the URL."""

    combine: Combine | None = None
    """What the job has reported; None: its checkpoints are asked."""
    span: Span | None = None
    """Of windows that states do not describe."""


async def measure(
    store: ObjectStore, engine: Engine, question: Question, progress: Progress = no_progress
) -> Report:
    """Measure the overhead of the job in a store.

    Raises ConfigError (the checkpoint of a Spark query, the status of another job),
    ObjectNotFoundError (no job), RestoreError (no checkpoint, or a Spark job that failed),
    CorruptObjectError and FormatVersionError, and what the store raises.
    """
    await _require_job(store)
    history, checkpoints = await read_history(store)
    if question.combine is not None:
        _require_same(history.job, question.combine.job)
    stored = await read_stored(store)
    blocks = await engine.blocks(checkpoints, progress)
    history, dropped = await without_dropped(store, history, blocks)
    operators = report_operators(history, blocks)
    operators = await _windows(engine, question, history, checkpoints, operators, progress)
    return _report(store.url, engine.name, question, history, stored, operators, dropped)


async def _require_job(store: ObjectStore) -> None:
    if await find_layout(store, None) == "query":
        raise ConfigError(
            f"location {store.url}",
            expected="the store of a tidelog job",
            found="the checkpoint of a Spark query, which has no materializations",
            action="use `tidelog spark checkpoints URL` for what its log holds",
        )


def _require_same(job: str, counted: str | None) -> None:
    if counted not in (None, job):
        raise ConfigError(
            "--status",
            expected=f"the output of job {job}, which wrote the store",
            found=f"that of job {counted}",
            action="pass the file of the right job, or leave the option out",
        )


async def _windows(
    engine: Engine,
    question: Question,
    history: History,
    checkpoints: Sequence[Checkpoint],
    operators: Sequence[OperatorReport],
    progress: Progress,
) -> list[OperatorReport]:
    """The operators, those with windows compared with the rule for windows."""
    kept = {id: window_states(states, question.span) for id, states in history.states.items()}
    logs = {
        interval.peak_log
        for operator in operators
        if kept[operator.id] is not None
        for interval in fullest_logs(operator)
    }
    written = await engine.changes(checkpoints, logs, progress) if logs else {}
    return [
        operator if states is None else with_windows(operator, states, written)
        for operator in operators
        for states in [kept[operator.id]]
    ]


def _report(
    url: str,
    engine: str,
    question: Question,
    history: History,
    stored: Stored,
    operators: Sequence[OperatorReport],
    dropped: int,
) -> Report:
    found = stretches(history.snapshots)
    first, last = history.snapshots[0], history.snapshots[-1]
    pairs = len(history.snapshots) - len(found)
    checkpoint_s = seconds(found) / pairs if pairs else None
    return Report(
        url=url,
        job=history.job,
        engine=engine,
        checkpoints=len(history.snapshots),
        first_slot=first.slot,
        last_slot=last.slot,
        seconds=seconds(found),
        checkpoint_s=checkpoint_s,
        operators=tuple(operators),
        combine=question.combine or combine_of(found),
        stored_bytes=stored.bytes,
        table_bytes=sum(point.table_bytes for point in last.points.values()),
        usage=log_usage(found, stored),
        notes=tuple(_notes(found, operators, checkpoint_s, dropped)),
    )


def _notes(
    found: Sequence[Sequence[Snapshot]],
    operators: Collection[OperatorReport],
    checkpoint_s: float | None,
    dropped: int,
) -> list[str]:
    notes = []
    if dropped:
        notes.append(f"left out: {dropped} checkpoints that the job dropped meanwhile")
    notes += [_border(before[-1], after[0]) for before, after in pairwise(found)]
    shortest = min((o.interval_s for o in operators if o.interval_s is not None), default=None)
    if shortest is not None and checkpoint_s is not None and checkpoint_s > _COARSE * shortest:
        notes.append(
            f"a checkpoint every {checkpoint_s:.1f} s shows the log at steps of "
            f"{checkpoint_s / shortest:.0%} of the shortest interval: a peak may be higher by that"
        )
    return notes


def _border(before: Snapshot, after: Snapshot) -> str:
    """What lies between two stretches."""
    if after.final:
        return f"slot {after.slot} ended the job: what its end of data changed is not counted"
    return (
        f"between slot {before.slot} and {after.slot} checkpoints are missing, or the job was "
        "restarted: nothing is measured across"
    )
