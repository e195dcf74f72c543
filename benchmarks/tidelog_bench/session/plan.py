"""Which trials a session does, in which order, which are left, how long they take, and how long
they may take.

Invariants: the variants of a pair run one after the other, every other pair in reverse order; a
pair counts as done only when all its variants are, so no ratio is formed across an interruption.
"""

import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from tidelog_bench.experiment import Experiment
from tidelog_bench.measurement import Cell, Measurement, Setting, Size, settings_key
from tidelog_bench.session.records import TrialRecord

Chosen = Callable[[dict[str, Setting]], bool]
PairKey = tuple[str, str, int]
"""Measurement, cell and pair."""


@dataclass(frozen=True, slots=True)
class Step:
    """One trial to be done."""

    measurement: Measurement
    cell: Cell
    """The cell with those of its variants that can run here."""
    variant: str
    pair: int
    position: int

    @property
    def pair_key(self) -> PairKey:
        """The pair that the trial belongs to."""
        return self.measurement.name, self.cell.key, self.pair


@dataclass(frozen=True, slots=True)
class Missing:
    """A variant that cannot run here, and why."""

    measurement: str
    variant: str
    reason: str


def measurements(experiments: Iterable[Experiment]) -> list[Measurement]:
    """The measurements that the experiments read, each once, in their order."""
    found = {experiment.measurement.name: experiment.measurement for experiment in experiments}
    return list(found.values())


def cells(measurement: Measurement, size: Size, chosen: Chosen) -> list[Cell]:
    """The chosen cells of a size."""
    return [cell for cell in measurement.cells(size) if chosen(dict(cell.settings))]


def missing(measurement: Measurement, of: Iterable[Cell]) -> list[Missing]:
    """The variants of these cells that cannot run here."""
    variants = dict.fromkeys(variant for cell in of for variant in cell.variants)
    reasons = ((variant, measurement.missing(variant)) for variant in variants)
    return [Missing(measurement.name, variant, reason) for variant, reason in reasons if reason]


def steps(
    measurement: Measurement, of: Iterable[Cell], absent: Iterable[Missing], pairs: int
) -> Iterator[Step]:
    """All trials of a measurement, in order."""
    without = {gap.variant for gap in absent}
    for cell in of:
        variants = tuple(variant for variant in cell.variants if variant not in without)
        runnable = Cell(cell.settings, variants, cell.expected_s)
        for pair in range(pairs):
            order = variants if pair % 2 == 0 else variants[::-1]
            for position, variant in enumerate(order):
                yield Step(measurement, runnable, variant, pair, position)


def left(planned: Sequence[Step], recorded: Iterable[TrialRecord]) -> list[Step]:
    """What is still to be done; a pair that lacks a variant is done again from its start."""
    done: dict[PairKey, set[str]] = {}
    for trial in recorded:
        key = trial.measurement, settings_key(trial.settings), trial.pair
        done.setdefault(key, set()).add(trial.variant)
    return [
        step
        for step in planned
        if not done.get(step.pair_key, set()).issuperset(step.cell.variants)
    ]


_OVERHEAD_S = 0.5
"""Start and end of a process, which no cell's guess contains."""


class TimeLeft:
    """How many seconds trials still take, learned from those that have ended.

    From the nearest thing that was seen: the same cell and variant, else the same measurement's
    ratio of taken to expected, else that of the whole session.
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str, str], float] = {}
        self._factors: dict[str, list[float]] = {}

    def learn(self, step: Step, taken_s: float) -> None:
        """Note how long a trial took."""
        self._seen[_key(step)] = taken_s
        factor = taken_s / (step.cell.expected_s + _OVERHEAD_S)
        self._factors.setdefault(step.measurement.name, []).append(factor)

    def of(self, step: Step) -> float:
        """How long a trial will take."""
        seen = self._seen.get(_key(step))
        if seen is not None:
            return seen
        return (step.cell.expected_s + _OVERHEAD_S) * self._factor(step.measurement.name)

    def total(self, steps: Iterable[Step]) -> float:
        """How long all of these will take."""
        return sum(map(self.of, steps))

    def _factor(self, measurement: str) -> float:
        of_all = [factor for factors in self._factors.values() for factor in factors]
        factors = self._factors.get(measurement, of_all)
        return statistics.median(factors) if factors else 1.0


def may_end(steps: Sequence[Step], remaining: TimeLeft, now: float, ends: float) -> float:
    """When the measurement of the first of these steps has to be over, so that all are by `ends`.

    It has its share of the time that is left: what earlier ones did not need is shared by all.
    """
    mine = [step for step in steps if step.measurement is steps[0].measurement]
    return now + max(0.0, ends - now) * remaining.total(mine) / remaining.total(steps)


def _key(step: Step) -> tuple[str, str, str]:
    return step.measurement.name, step.cell.key, step.variant
