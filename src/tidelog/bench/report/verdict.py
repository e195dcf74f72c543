"""Whether a ratio says something, or is what noise gives.

Invariant: without five pairs nothing is beyond noise. When two variants are equally fast, five
pairs all lie on one side of 1 in one of sixteen sessions.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

from tidelog.bench.experiment import Figure

ENOUGH: Final = 5
"""Pairs."""


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
    """Of the spread of a ratio: beyond noise when all pairs lie on one side of 1."""
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
