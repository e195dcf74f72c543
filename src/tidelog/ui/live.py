"""A running job on the page: what its status says, and what became of it since the one before.

Invariants: a status is read without trust in its fields, for the job may be of an older or a newer
release; between two incarnations, and where a counter went back, there is no rate.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import msgspec

from tidelog.errors import ControlError
from tidelog.runtime.control.protocol import Done
from tidelog.ui.document import (
    CheckpointPoint,
    LivePart,
    Materialized,
    OperatorNow,
    OperatorSeries,
    Phases,
    StateSeries,
    TaskNow,
)

_KNOWN_TIME: Final = 1 << 53
"""Watermarks beyond it stand for the beginning or the end of time."""


class TaskFigures(msgspec.Struct, frozen=True):
    """What the page computes with of a subtask."""

    subtask: int
    busy_s: float = 0.0
    backpressured_s: float = 0.0
    input_bytes: int | None = None
    materialization_lag_s: float | None = None


class OperatorFigures(msgspec.Struct, frozen=True):
    """What the page computes with of an operator."""

    id: str
    parallelism: int = 1
    records_in: int = 0
    records_out: int = 0
    source: bool = False
    busy_s: float = 0.0
    backpressured_s: float = 0.0
    late_records: int = 0
    watermark_ms: int | None = None
    tasks: tuple[TaskFigures, ...] = ()


class StateFigures(msgspec.Struct, frozen=True):
    """What the page computes with of the state."""

    table_bytes: int | None = None
    materialized_bytes: int | None = None
    log_bytes: int | None = None


class UploadFigures(msgspec.Struct, frozen=True):
    """What the page computes with of the uploads of the log."""

    queued_bytes: int | None = None


class Figures(msgspec.Struct, frozen=True):
    """The fields of a status that the page computes with; others it shows as they are."""

    job: str
    phase: str = "running"
    at_s: float = 0.0
    generation: int | None = None
    operators: tuple[OperatorFigures, ...] = ()
    state: StateFigures = StateFigures()
    uploads: UploadFigures = UploadFigures()
    memory: dict[str, Any] = {}

    @property
    def memory_bytes(self) -> int | None:
        """All that counts against the budget; None where nobody says."""
        used = self.memory.get("used_bytes")
        return used if isinstance(used, int) else None


class Sample(msgspec.Struct, frozen=True):
    """The figures of a job at one moment."""

    at_ms: int
    figures: Figures

    def to_keep(self) -> "Sample":
        """Without the subtasks, of which only the last look is shown."""
        replace = msgspec.structs.replace
        operators = tuple(replace(each, tasks=()) for each in self.figures.operators)
        return Sample(self.at_ms, replace(self.figures, operators=operators))


class _Sizes(msgspec.Struct, frozen=True):
    log_full_bytes: int
    log_incremental_bytes: int
    materialized_full_bytes: int
    materialized_incremental_bytes: int


class _NewTable(msgspec.Struct, frozen=True):
    operator: str
    subtask: int
    table_bytes: int
    upto: int


class _Completed(msgspec.Struct, frozen=True):
    slot: int
    checkpoint_id: int
    generation: int
    created_ms: int
    seconds: float
    phases: Phases
    manifest_bytes: int
    sizes: _Sizes
    unaligned: bool = False
    savepoint: str | None = None
    canonical: bool = False
    new_tables: tuple[_NewTable, ...] = ()


def figures_of(done: Done) -> Figures:
    """The figures in a job's answer; raises ControlError for one that makes no sense here."""
    figures: Figures = _understood(done.status, Figures)
    return figures


def completed_points(done: Done) -> list[CheckpointPoint]:
    """The checkpoints that a job says it completed; raises ControlError."""
    return [
        CheckpointPoint(
            slot=each.slot,
            checkpoint_id=each.checkpoint_id,
            generation=each.generation,
            at_ms=each.created_ms,
            stored=False,
            savepoint=each.savepoint,
            canonical=each.canonical,
            unaligned=each.unaligned,
            seconds=each.seconds,
            phases=each.phases,
            manifest_bytes=each.manifest_bytes,
            log_bytes=each.sizes.log_full_bytes,
            table_bytes=each.sizes.materialized_full_bytes,
            new_log_bytes=each.sizes.log_incremental_bytes,
            new_table_bytes=each.sizes.materialized_incremental_bytes,
        )
        for each in _understood(done.checkpoints, tuple[_Completed, ...])
    ]


def told_uploads(done: Done) -> list[Materialized]:
    """The uploads of tables that a job says its checkpoints were the first to name; raises
    ControlError.
    """
    return [
        Materialized(new.operator, new.subtask, each.created_ms, new.table_bytes, new.upto)
        for each in _understood(done.checkpoints, tuple[_Completed, ...])
        for new in each.new_tables
    ]


def _understood(found: object, kind: Any) -> Any:
    try:
        return msgspec.convert(found, kind)
    except msgspec.ValidationError as cause:
        raise ControlError(
            "the answer of the job that runs on this store",
            expected="figures that this release of tidelog reads",
            found=str(cause),
            action="use the release of tidelog that the job runs",
        ) from cause


def live_part(done: Done, looks: Sequence[Sample], samples: Sequence[Sample]) -> LivePart:
    """What the page shows of a job: its last answer, the last two looks and those before."""
    now = looks[-1]
    before = looks[-2] if len(looks) > 1 else now
    return LivePart(
        done.pid, now.at_ms, done.status, _now(before, now), _state(samples), _operators(samples)
    )


def _now(before: Sample, now: Sample) -> tuple[OperatorNow, ...]:
    elapsed = _elapsed(before, now)
    old = {each.id: each for each in before.figures.operators}
    return tuple(_operator_now(old.get(each.id), each, elapsed) for each in now.figures.operators)


def _operator_now(
    old: OperatorFigures | None, new: OperatorFigures, elapsed: float | None
) -> OperatorNow:
    rates = _rates(old, new, elapsed) if old is not None and elapsed is not None else _NO_RATES
    tasks = {each.subtask: each for each in old.tasks} if old is not None else {}
    # Where a counter went back, the subtasks have no shares either.
    same = elapsed if rates is not _NO_RATES else None
    return OperatorNow(
        new.id,
        records_per_s=rates[0],
        busy=rates[1],
        backpressured=rates[2],
        tasks=tuple(_task(tasks.get(each.subtask), each, same) for each in new.tasks),
    )


def _task(old: TaskFigures | None, new: TaskFigures, elapsed: float | None) -> TaskNow:
    busy = backpressured = None
    if old is not None and elapsed is not None:
        busy = _share((new.busy_s - old.busy_s) / elapsed)
        backpressured = _share((new.backpressured_s - old.backpressured_s) / elapsed)
    return TaskNow(new.subtask, busy, backpressured, new.input_bytes, new.materialization_lag_s)


def _elapsed(before: Sample, after: Sample) -> float | None:
    """Seconds between two looks at one incarnation; None between two."""
    seconds = after.figures.at_s - before.figures.at_s
    same = before.figures.generation == after.figures.generation
    return seconds if same and seconds > 0 else None


def _state(samples: Sequence[Sample]) -> StateSeries:
    figures = [sample.figures for sample in samples]
    # Before it runs a job has no tables: that they are empty would be wrong.
    known = [each.phase not in ("starting", "restoring") for each in figures]
    pairs = list(zip(figures, known, strict=True))
    return StateSeries(
        at_ms=tuple(sample.at_ms for sample in samples),
        log_bytes=tuple(f.state.log_bytes if known else None for f, known in pairs),
        materialized_bytes=tuple(
            f.state.materialized_bytes if known else None for f, known in pairs
        ),
        table_bytes=tuple(f.state.table_bytes if known else None for f, known in pairs),
        queued_bytes=tuple(f.uploads.queued_bytes if known else None for f, known in pairs),
        memory_bytes=tuple(f.memory_bytes for f in figures),
    )


def _operators(samples: Sequence[Sample]) -> tuple[OperatorSeries, ...]:
    names = dict.fromkeys(each.id for sample in samples for each in sample.figures.operators)
    by_name = [{each.id: each for each in sample.figures.operators} for sample in samples]
    return tuple(_operator(name, samples, by_name) for name in names)


def _operator(
    name: str, samples: Sequence[Sample], by_name: Sequence[Mapping[str, OperatorFigures]]
) -> OperatorSeries:
    rates = [_NO_RATES] if samples else []
    for (before, after), (old, new) in zip(pairwise(samples), pairwise(by_name), strict=True):
        elapsed = _elapsed(before, after)
        if elapsed is None or name not in old or name not in new:
            rates.append(_NO_RATES)
        else:
            rates.append(_rates(old[name], new[name], elapsed))
    return OperatorSeries(
        name,
        records_per_s=tuple(rate[0] for rate in rates),
        busy=tuple(rate[1] for rate in rates),
        backpressured=tuple(rate[2] for rate in rates),
        late_per_s=tuple(rate[3] for rate in rates),
        behind_s=tuple(
            _behind(sample.at_ms, figures.get(name))
            for sample, figures in zip(samples, by_name, strict=True)
        ),
    )


_Rates = tuple[float | None, float | None, float | None, float | None]
_NO_RATES: Final[_Rates] = (None, None, None, None)


def _rates(old: OperatorFigures, new: OperatorFigures, elapsed: float) -> _Rates:
    """Records and late records a second, and the shares of time at work and back-pressured."""
    records, late = new.records_in - old.records_in, new.late_records - old.late_records
    if records < 0 or late < 0:
        return _NO_RATES
    whole = elapsed * max(1, new.parallelism)
    return (
        records / elapsed,
        _share((new.busy_s - old.busy_s) / whole),
        _share((new.backpressured_s - old.backpressured_s) / whole),
        late / elapsed,
    )


def _share(value: float) -> float:
    return max(0.0, min(1.0, value))


def _behind(at_ms: int, operator: OperatorFigures | None) -> float | None:
    if operator is None or operator.watermark_ms is None:
        return None
    if abs(operator.watermark_ms) >= _KNOWN_TIME:
        return None
    return (at_ms - operator.watermark_ms) / 1000
