"""The series of a job: what the declarations of a status come to, and their samples.

Invariant: what serves or documents metrics does it from `SERIES`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from operator import attrgetter
from typing import Any, Final, get_args, get_type_hints

from tidelog.metrics import LABEL, METRIC, Label, Metric
from tidelog.runtime.status.distribution import Distribution
from tidelog.runtime.status.status import JobStatus

Sample = tuple[dict[str, str], float]
"""Labels and a value."""

_Part = tuple[dict[str, str], Any]


@dataclass(frozen=True, slots=True)
class _Step:
    """From a part of a status to one of its fields."""

    field: str
    label: Label | None

    @property
    def key(self) -> str:
        """The field's name; `*` where a label has it."""
        label_is_key = self.label is not None and self.label.attribute is None
        return "*" if label_is_key else self.field

    def into(self, parts: Iterable[_Part]) -> Iterator[_Part]:
        """What the field holds, in all parts that have something there."""
        for labels, part in parts:
            value = getattr(part, self.field)
            if value is None:
                continue
            for inner in value if isinstance(value, tuple) else (value,):
                yield {**labels, **self._label(inner)}, inner

    def _label(self, part: Any) -> dict[str, str]:
        if self.label is None:
            return {}
        attribute = self.label.attribute
        value = self.field if attribute is None else getattr(part, attribute)
        return {self.label.name: str(value)}


@dataclass(frozen=True, slots=True)
class Series:
    """A declared metric at its place in a status."""

    metric: Metric
    labels: tuple[str, ...]
    field: str
    paths: tuple[tuple[_Step, ...], ...]
    """Where in a status the parts are that have the field."""

    @property
    def name(self) -> str:
        """The name as it is declared; Prometheus adds `_total` to counters."""
        return f"tidelog_{self.metric.name}"

    @property
    def prometheus_name(self) -> str:
        """The name as a query has it."""
        return f"{self.name}_total" if self.metric.kind == "counter" else self.name

    @property
    def room(self) -> str:
        """The field of a job's status that it lies in; empty for the job itself."""
        first = self.paths[0]
        return first[0].field if first else ""

    @property
    def keys(self) -> list[str]:
        """Where it is in the JSON of a status; `*` stands for a label's values."""
        keys: set[tuple[str, ...]] = set()
        for path in self.paths:
            keys.add((*map(attrgetter("key"), path), self.field))
        return list(map(".".join, sorted(keys)))

    def samples(self, status: JobStatus, later_s: float = 0.0) -> Iterator[Sample]:
        """Labels and value of each sample, so long after the status was taken, as far as known."""
        for path in self.paths:
            parts: Iterable[_Part] = [({"job_name": status.job}, status)]
            for step in path:
                parts = step.into(parts)
            for labels, part in parts:
                value = self.metric.value(getattr(part, self.field), later_s)
                if isinstance(value, Distribution):
                    for statistic in fields(value):
                        number = getattr(value, statistic.name)
                        yield {**labels, "statistic": statistic.name}, number
                elif value is not None:
                    yield labels, value


def _declared(
    kind: type, path: tuple[_Step, ...] = (), labels: tuple[str, ...] = ("job_name",)
) -> Iterator[Series]:
    hints = get_type_hints(kind)
    for field in fields(kind):
        metric, label = field.metadata.get(METRIC), field.metadata.get(LABEL)
        inner = _dataclass_in(hints[field.name])
        if metric is not None:
            series_labels = (*labels, "statistic") if inner is Distribution else labels
            yield Series(metric, series_labels, field.name, (path,))
        elif inner is not None:
            further = (*labels, label.name) if label is not None else labels
            yield from _declared(inner, (*path, _Step(field.name, label)), further)


def _dataclass_in(hint: Any) -> type | None:
    """The dataclass that a type is, or that it is optional or a tuple of."""
    return next(filter(is_dataclass, (hint, *get_args(hint))), None)  # type: ignore[return-value]


def _joined(declarations: Iterable[Series]) -> tuple[Series, ...]:
    """One series for each metric: parts of one kind differ in a label."""
    series: dict[str, Series] = {}
    for declaration in declarations:
        earlier = series.get(declaration.name)
        paths = declaration.paths if earlier is None else (*earlier.paths, *declaration.paths)
        series[declaration.name] = replace(declaration, paths=paths)
    return tuple(series.values())


SERIES: Final = _joined(_declared(JobStatus))
"""Every series of a job, in the order of its status."""
