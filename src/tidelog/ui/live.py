"""A running job on the page: its status as it came, and what became of it since the one before.

Invariants: an answer is read as JSON, without trust in its fields, for the job may be of an older
or a newer release: what it lacks is not known, and what is new passes through; between two
incarnations, and where a counter went back, there is no rate.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import msgspec
from msgspec.structs import asdict

from tidelog.errors import ControlError
from tidelog.runtime.control.protocol import Done

Json = Mapping[str, Any]

_KNOWN_TIME: Final = 1 << 53
"""Watermarks beyond it stand for the beginning or the end of time."""
_CHARTED: Final = {
    "log_bytes": ("state", "log_bytes"),
    "materialized_bytes": ("state", "materialized_bytes"),
    "table_bytes": ("state", "table_bytes"),
    "queued_bytes": ("uploads", "queued_bytes"),
    "memory_bytes": ("memory", "used_bytes"),
}
"""The charts of a job, and where in a status their figures are."""
_OF_OPERATOR: Final = (
    *("id", "parallelism", "records_in", "late_records"),
    *("busy_s", "backpressured_s", "watermark_ms", "record_latency_s"),
)
_NO_TABLES_YET: Final = ("starting", "restoring")


def figure(value: Any, *path: str) -> Any:
    """The number at a place in JSON; None where there is none."""
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value if isinstance(value, int | float) else None


def parts(parent: Json, name: str) -> list[Json]:
    """The objects in a list in JSON."""
    listed = parent.get(name)
    return [part for part in listed if isinstance(part, Mapping)] if listed else []


class Sample(msgspec.Struct, frozen=True):
    """The status of a job at one moment."""

    at_ms: int
    status: Json

    @property
    def operators(self) -> dict[str, Json]:
        return {str(operator.get("id")): operator for operator in parts(self.status, "operators")}

    def to_keep(self) -> "Sample":
        """What charts need of it: subtasks are shown of the last look alone."""
        fields: dict[str, Any] = {n: self.status.get(n) for n in ("phase", "at_s", "generation")}
        for part, name in _CHARTED.values():
            fields.setdefault(part, {})[name] = figure(self.status, part, name)
        operators = self.operators.values()
        fields["operators"] = [{n: operator.get(n) for n in _OF_OPERATOR} for operator in operators]
        return Sample(self.at_ms, fields)


class Rates(msgspec.Struct, frozen=True):
    """An operator or a subtask between two looks; null where there is nothing to go by."""

    records_per_s: float | None = None
    busy: float | None = None
    """Share of the time, averaged over the subtasks."""
    backpressured: float | None = None
    late_per_s: float | None = None


class LivePart(msgspec.Struct, frozen=True):
    """A job that runs: its status as it came, and what was seen of it."""

    pid: int
    at_ms: int
    status: Json
    """`tidelog run --json` has the same fields; readers do without what a release has not."""
    now: list[dict[str, Any]]
    """By operator, `Rates` between the last two looks, and as `tasks` the subtasks of its status
    with theirs."""
    workers: list[dict[str, Any]]
    """The workers of its status, with theirs."""
    series: dict[str, list[Any]]
    """By name of a chart a value per sample, and the samples' moments as `at_ms`."""
    operators: list[dict[str, Any]]
    """By operator, for each of `Rates` a value per sample, as `behind_s` how far the watermark
    lags the clock, and as `latency_s` the 99th percentile of the records' latency."""


def status_in(done: Done) -> Json:
    """The status in a job's answer; raises ControlError for one that makes no sense here."""
    status = done.status
    has_job = isinstance(status, Mapping) and isinstance(status.get("job"), str)
    if not has_job or not isinstance(status.get("operators", []), list):
        raise ControlError(
            "the answer of the job that runs on this store",
            expected="figures that this release of tidelog reads",
            found="others",
            action="use the release of tidelog that the job runs",
        )
    return status  # type: ignore[no-any-return]  # a mapping: it was looked at


def completed_points(done: Done) -> list[dict[str, Any]]:
    completed = parts({"all": done.checkpoints}, "all")
    return [
        {name: value for name, value in point.items() if name != "new_tables"}
        for point in completed
        if figure(point, "checkpoint") is not None
    ]


def new_tables(done: Done) -> list[dict[str, Any]]:
    """The uploads of tables that a job says its checkpoints were the first to name."""
    return [
        {**new, "at_ms": point.get("created_ms")}
        for point in parts({"all": done.checkpoints}, "all")
        for new in parts(point, "new_tables")
    ]


def live_part(done: Done, looks: Sequence[Sample], samples: Sequence[Sample]) -> LivePart:
    """What the page shows of a job: its last answer, the last two looks and those before."""
    now = looks[-1]
    before = looks[-2] if len(looks) > 1 else now
    workers = parts(before.status, "workers"), parts(now.status, "workers")
    by_name = [sample.operators for sample in samples]
    names = dict.fromkeys(name for operators in by_name for name in operators)
    return LivePart(
        done.pid,
        now.at_ms,
        done.status,
        _now(before, now),
        _with_rates("worker", *workers, _elapsed(before, now)),
        {"at_ms": [sample.at_ms for sample in samples]}
        | {
            name: [_charted(sample, *path) for sample in samples] for name, path in _CHARTED.items()
        },
        [_operator(name, samples, by_name) for name in names],
    )


def _charted(sample: Sample, part: str, name: str) -> Any:
    # Before it runs a job has no tables: that they are empty would be wrong.
    unknown = part != "memory" and sample.status.get("phase") in _NO_TABLES_YET
    return None if unknown else figure(sample.status, part, name)


def _now(before: Sample, now: Sample) -> list[dict[str, Any]]:
    elapsed, old = _elapsed(before, now), before.operators
    operators = []
    for name, operator in now.operators.items():
        last = old.get(name, {})
        rates = _rates(last, operator, elapsed)
        # Where a counter went back, the subtasks have no shares either.
        same = elapsed if rates != Rates() else None
        tasks = _with_rates("subtask", parts(last, "tasks"), parts(operator, "tasks"), same)
        operators.append({"id": name, **asdict(rates), "tasks": tasks})
    return operators


def _with_rates(
    label: str, before: Sequence[Json], now: Sequence[Json], elapsed: float | None
) -> list[dict[str, Any]]:
    """Parts of a status with their `Rates` since another look, which had them by the same label."""
    old = {part.get(label): part for part in before}
    return [{**part, **asdict(_rates(old.get(part.get(label), {}), part, elapsed))} for part in now]


def _operator(
    name: str, samples: Sequence[Sample], by_name: Sequence[Mapping[str, Json]]
) -> dict[str, Any]:
    statuses = [operators.get(name, {}) for operators in by_name]
    pairs = zip(pairwise(samples), pairwise(statuses), strict=True)
    rates = [Rates(), *(_rates(*operators, _elapsed(*looks)) for looks, operators in pairs)]
    series = {field: [getattr(r, field) for r in rates] for field in Rates.__struct_fields__}
    behind_s = [_behind(s.at_ms, operator) for s, operator in zip(samples, statuses, strict=True)]
    latency_s = [figure(operator, "record_latency_s", "p99") for operator in statuses]
    return {"id": name, **series, "behind_s": behind_s, "latency_s": latency_s}


def _elapsed(before: Sample, after: Sample) -> float | None:
    """Seconds between two looks at one incarnation; None between two."""
    seconds = _grown(before.status, after.status, "at_s")
    same = before.status.get("generation") == after.status.get("generation")
    return seconds if same and seconds else None


def _grown(old: Json, new: Json, name: str) -> float | None:
    before, after = figure(old, name), figure(new, name)
    return None if before is None or after is None else after - before


def _rates(old: Json, new: Json, elapsed: float | None) -> Rates:
    records, late = _grown(old, new, "records_in"), _grown(old, new, "late_records")
    if not elapsed or elapsed < 0 or (records or 0) < 0 or (late or 0) < 0:
        return Rates()
    total_s = elapsed * max(1, figure(new, "parallelism") or 1)
    return Rates(
        None if records is None else records / elapsed,
        _share(_grown(old, new, "busy_s"), total_s),
        _share(_grown(old, new, "backpressured_s"), total_s),
        None if late is None else late / elapsed,
    )


def _share(increase: float | None, total: float) -> float | None:
    return None if increase is None else max(0.0, min(1.0, increase / total))


def _behind(at_ms: int, operator: Json) -> float | None:
    mark = figure(operator, "watermark_ms")
    return None if mark is None or abs(mark) >= _KNOWN_TIME else (at_ms - mark) / 1000
