"""Which trials a session does, in which order, and which are left.

Invariants: the variants of a pair run one after the other, every other pair in reverse order; a
pair counts as done only when all its variants are, so no ratio is formed across an interruption.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from tidelog.bench.experiment import Experiment
from tidelog.bench.measurement import Cell, Measurement, Setting, Size
from tidelog.bench.records import TrialRecord

Chosen = Callable[[dict[str, Setting]], bool]
PairKey = tuple[str, str, int]
"""Measurement, cell and pair."""


@dataclass(frozen=True, slots=True)
class Step:
    """One trial to be done."""

    measurement: Measurement
    cell: Cell
    """With the variants that can run here."""
    variant: str
    pair: int
    position: int

    @property
    def pair_key(self) -> PairKey:
        """The pair it belongs to."""
        return self.measurement.name, self.cell.key, self.pair


@dataclass(frozen=True, slots=True)
class Missing:
    """A variant that cannot run here, and why."""

    measurement: str
    variant: str
    reason: str


def measurements(experiments: Iterable[Experiment]) -> list[Measurement]:
    """Those that the experiments read, each once, in their order."""
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
        cell = Cell(trial.settings, (), 0.0)
        done.setdefault((trial.measurement, cell.key, trial.pair), set()).add(trial.variant)
    return [
        step
        for step in planned
        if not done.get(step.pair_key, set()).issuperset(step.cell.variants)
    ]
