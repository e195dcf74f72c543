"""Whether a ratio says something, or is what noise gives.

Invariant: without five pairs nothing is beyond noise. When two variants are equally fast, five
pairs all lie on one side of 1 in one of sixteen sessions.
"""

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from tidelog_bench.experiment import Figure
from tidelog_bench.report.answer import Answer

ENOUGH: Final = 5
"""Pairs that a verdict needs."""


def few(pairs: int) -> str:
    """What is to be said of a session with fewer pairs than a verdict needs."""
    counted = "1 pair" if pairs == 1 else f"{pairs} pairs"
    return f"{counted}: too few to tell a difference from noise; that takes {ENOUGH}"


class Verdict(StrEnum):
    """What a ratio says."""

    BETTER = "better"
    WORSE = "worse"
    DIFFERENT = "different"
    """Beyond noise, of a figure of which neither more nor less is better."""
    EQUAL = "equal"
    """Exactly 1 in every pair."""
    NOISE = "within noise"
    FEW = "too few pairs"

    @property
    def beyond_noise(self) -> bool:
        """Whether the two variants differ."""
        return self in (Verdict.BETTER, Verdict.WORSE, Verdict.DIFFERENT)


def verdict(ratio: Mapping[str, Any], figure: Figure) -> Verdict:
    """What a ratio says; it is beyond noise when all pairs lie on one side of 1."""
    if ratio["n"] < ENOUGH:
        return Verdict.FEW
    if ratio["min"] == ratio["max"] == 1:
        return Verdict.EQUAL
    if ratio["min"] <= 1 <= ratio["max"]:
        return Verdict.NOISE
    if figure.better == "neither":
        return Verdict.DIFFERENT
    larger = ratio["min"] > 1
    return Verdict.BETTER if larger == (figure.better == "higher") else Verdict.WORSE


_ORDER: Final = tuple(Verdict)


@dataclass(frozen=True, slots=True)
class Headline:
    """The one ratio that says most of an experiment, over all its cells."""

    figure: Figure
    ratio: str
    median: float
    """The median of the cells' medians."""
    low: float
    """The lowest ratio of all pairs of all cells."""
    high: float
    verdicts: Sequence[Verdict]
    """One verdict per cell."""

    @property
    def says(self) -> str:
        """What the cells say together."""
        counted = Counter(self.verdicts)
        if len(counted) == 1:
            only = self.verdicts[0]
            return f"{only} in all {len(self.verdicts)} cells" if len(self.verdicts) > 1 else only
        return ", ".join(f"{counted[kind]} {kind}" for kind in _ORDER if counted[kind])

    @property
    def verdict(self) -> Verdict | None:
        """What all cells say; None where they disagree."""
        return self.verdicts[0] if len(set(self.verdicts)) == 1 else None


def headline(answer: Answer) -> Headline | None:
    """The first ratio of the first figure that has one; None where nothing can be divided."""
    for figure in answer.present(answer.experiment.figures):
        for ratio in answer.experiment.ratios:
            found = [
                cell.ratios[ratio.name][figure.name]
                for cell in answer.cells
                if figure.name in cell.ratios.get(ratio.name, {})
            ]
            if found:
                return Headline(
                    figure,
                    ratio.name,
                    statistics.median(each["median"] for each in found),
                    min(each["min"] for each in found),
                    max(each["max"] for each in found),
                    [verdict(each, figure) for each in found],
                )
    return None
