"""How a figure is declared as a metric: once, at the field that holds it.

A field of a status is made by `counter`, `gauge` or `flag`. From that follow the series of
Prometheus and docs/reference/metrics.md. What is None has no sample.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

METRIC: Final = "metric"
LABEL: Final = "label"
_UNITS: Final = {"seconds": "seconds", "bytes": "bytes", "ms": "milliseconds"}


Across = Literal["sum", "max", "min"]


@dataclass(frozen=True, slots=True)
class Metric:
    """The declaration of one metric; `name` is without `tidelog_`."""

    kind: Literal["counter", "gauge"]
    """A counter only grows, from 0 at each start."""
    name: str
    help: str
    """A sentence that says what is counted or measured."""
    watch: str
    """What to look at it for."""
    across: Across = "sum"
    """What the figures of several processes are for the job."""
    ages: Literal["always", "once due"] | None = None
    """For a time that passes: it is longer when the figure is asked for than when it was taken, if
    it is of something that is `due` only where it is above 0."""
    holds: Callable[[Any], bool] | None = None
    """For a flag, whether a value becomes the sample 1 and not 0. None for other metrics."""

    def value(self, value: Any, later_s: float = 0.0) -> Any:
        """What a value of the field is as a sample, so long after it was taken."""
        if self.holds is not None:
            return float(self.holds(value))
        ages = value is not None and (self.ages == "always" or (self.ages and value > 0))
        return value + later_s if ages else value

    @property
    def unit(self) -> str | None:
        """The unit, which is a word of the name; None for a number of things."""
        return next((_UNITS[word] for word in self.name.split("_") if word in _UNITS), None)


@dataclass(frozen=True, slots=True)
class Label:
    """A label that all samples of a part of a status get."""

    name: str
    attribute: str | None = None
    """The part's field with the label's value; None: the value is the name of the part."""


def counter(name: str, help: str, *, watch: str, default: Any = 0, init: bool = True) -> Any:
    """A field that only grows."""
    return _field(Metric("counter", name, help, watch), default, init)


def gauge(
    name: str,
    help: str,
    *,
    watch: str,
    default: Any = 0,
    init: bool = True,
    across: Across = "sum",
    ages: Literal["always", "once due"] | None = None,
) -> Any:
    """A field with a number, or with a distribution: that is one sample per statistic."""
    return _field(Metric("gauge", name, help, watch, across, ages), default, init)


def flag(
    name: str, help: str, *, watch: str, holds: Callable[[Any], bool], default: Any = None
) -> Any:
    """A field that is 1 or 0 as a metric."""
    return _field(Metric("gauge", name, help, watch, holds=holds), default, True)


def part(label: str) -> Any:
    """A field with a part of the status, in whose samples `label` is the field's name."""
    return field(metadata={LABEL: Label(label)})


def parts(label: str, attribute: str) -> Any:
    """A field with a tuple of parts, in whose samples `label` is the part's `attribute`."""
    return field(default=(), metadata={LABEL: Label(label, attribute)})


def _field(metric: Metric, default: Any, init: bool) -> Any:
    return field(default=default, init=init, metadata={METRIC: metric})
