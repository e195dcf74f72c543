"""What is measured and how it is shown: the cells of an experiment, its trials, its figures.

Invariants: a trial is described by its settings, variant and seed alone; `measure` is importable by
name, because every trial runs in a fresh process; all that is shown comes from records of trials.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

T = TypeVar("T")
Setting = str | int | float | bool | None
Better = Literal["lower", "higher", "neither"]


class Size(StrEnum):
    """How long a session may take: everything in five minutes, two hours, or twenty."""

    QUICK = "quick"
    STANDARD = "standard"
    FULL = "full"


def settings_key(settings: Mapping[str, Setting]) -> str:
    """Settings as canonical JSON: equal for equal cells."""
    return json.dumps(dict(settings), sort_keys=True)


@dataclass(frozen=True, slots=True)
class Cell:
    """One combination of settings; its variants are what is compared.

    The settings hold every knob of a run, sizes and durations too: two cells with equal settings
    are repetitions of each other, in any session. `expected_s` is a guess at the wall time of one
    trial, and `first_s` at what the first one of a variant takes besides, for the time left; both
    are corrected by what trials took.
    """

    settings: Mapping[str, Setting]
    variants: tuple[str, ...]
    expected_s: float
    first_s: float = 0.0

    @property
    def key(self) -> str:
        return settings_key(self.settings)


@dataclass(frozen=True, slots=True)
class Trial:
    settings: Mapping[str, Setting]
    variant: str
    seed: int
    """The same for all variants of a pair."""
    directory: Path
    """Empty; removed afterwards."""
    kept: Path
    """A directory of all trials of this cell and variant: empty for the first of them, and for the
    next one after a failure.
    """

    def read(self, kind: type[T], **more: Any) -> T:
        """The settings, `seed` and `more` that a dataclass has as fields, as this dataclass.

        Raises msgspec.ValidationError for one that is missing or has another type.
        """
        return msgspec.convert({**self.settings, "seed": self.seed, **more}, kind)


@dataclass(frozen=True, slots=True)
class Reading:
    """What one trial gave; the warm-up is not in it."""

    figures: Mapping[str, float]
    """Numbers by name; the name ends with the unit where there is one: `p99_ms`."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """Whatever else helps to judge the run, as JSON."""


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
        return f"{self.over} / {self.under}"


@dataclass(frozen=True, slots=True)
class Experiment:
    """A question, the runs that answer it, and the figures of the answer."""

    name: str
    title: str
    question: str
    group: Literal["embedded", "spark", "peers"]
    cells: Callable[[Size], Sequence[Cell]]
    measure: Callable[[Trial], Reading]
    figures: Sequence[Figure]
    """In a cell those that its trials gave."""
    ratios: Sequence[Ratio] = ()
    missing: Callable[[str], str | None] = lambda variant: None
    """Why a variant cannot run on this machine, and what to install; None when it can."""
    also: Sequence[str] = ()
    """What a trial runs and its module does not import: modules, or a package for all in it, and
    directories of the checkout, which have a slash.
    """
    resident: bool = False
    """The trials of a cell and variant share a process, where what takes long to start goes on; in
    a quick session all such trials share one.
    """


def common(cells: Sequence[Mapping[str, Setting]]) -> dict[str, Setting]:
    """The settings that all cells share; of a single cell all."""
    first, rest = (cells[0], cells[1:]) if cells else ({}, ())
    return {
        name: value
        for name, value in first.items()
        if all(name in other and other[name] == value for other in rest)
    }
