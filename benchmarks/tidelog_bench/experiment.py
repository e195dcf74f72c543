"""What is shown: a question, the figures and ratios that answer it, and how they are drawn.

Invariant: an experiment only reads; all it shows comes from the records of its measurement.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tidelog_bench.measurement import Measurement

Better = Literal["lower", "higher", "neither"]
Group = Literal["embedded", "spark", "peers", "more"]


@dataclass(frozen=True, slots=True)
class Figure:
    """A number of a reading, as people see it."""

    name: str
    title: str
    unit: str
    better: Better = "lower"


@dataclass(frozen=True, slots=True)
class Ratio:
    """A figure of one variant divided by the same figure of another, pair by pair."""

    over: str
    under: str

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.over} / {self.under}"


@dataclass(frozen=True, slots=True)
class OverTime:
    """A line per variant from the series of one trial, the median pair's; a plot per cell."""

    series: str
    title: str
    unit: str
    log: bool = False
    also: tuple[str, ...] = ()
    """Further series drawn dashed in the same plot, for example what was predicted."""


@dataclass(frozen=True, slots=True)
class Against:
    """A figure against a numeric setting: a line per variant, bars from min to max."""

    figure: str
    setting: str
    title: str
    log_x: bool = False
    log_y: bool = False


@dataclass(frozen=True, slots=True)
class Bars:
    """A group of bars per cell, a bar per variant, whiskers from min to max."""

    figure: str
    title: str
    log: bool = False


@dataclass(frozen=True, slots=True)
class Distribution:
    """Several figures of one unit side by side for every variant: p50, p90, ... max."""

    figures: tuple[str, ...]
    title: str
    log: bool = True


Plot = OverTime | Against | Bars | Distribution


@dataclass(frozen=True, slots=True)
class Experiment:
    """One question and its answer."""

    name: str
    title: str
    question: str
    group: Group
    measurement: Measurement
    figures: Sequence[Figure]
    """The first ones are shown in summaries."""
    ratios: Sequence[Ratio] = ()
    plots: Sequence[Plot] = ()
