"""Medians with their spread, and ratios pair by pair.

Invariant: a ratio is formed within one pair only, because the machine's speed drifts.
"""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tidelog_bench.experiment import Ratio
from tidelog_bench.session.records import TrialRecord

Spread = dict[str, float]


def spread(values: Sequence[float]) -> Spread:
    """Median, min, max and their number."""
    return {
        "median": statistics.median(values),
        "min": min(values),
        "max": max(values),
        "n": len(values),
    }


def figures(trials: Iterable[TrialRecord]) -> dict[str, dict[str, Spread]]:
    """Variant, then figure, then its spread; a figure that only some trials have counts there."""
    values: dict[str, dict[str, list[float]]] = {}
    for trial in trials:
        for name, value in trial.figures.items():
            values.setdefault(trial.variant, {}).setdefault(name, []).append(value)
    return {
        variant: {name: spread(found) for name, found in of_variant.items()}
        for variant, of_variant in values.items()
    }


def ratios(trials: Iterable[TrialRecord], asked: Iterable[Ratio]) -> dict[str, dict[str, Any]]:
    """`over / under`, then figure, then the spread of the ratios, and all of them as `pairs`."""
    by_pair: dict[int, dict[str, Mapping[str, float]]] = {}
    for trial in trials:
        by_pair.setdefault(trial.pair, {})[trial.variant] = trial.figures
    found: dict[str, dict[str, Any]] = {}
    for ratio in asked:
        of_ratio = _of_figures([by_pair[pair] for pair in sorted(by_pair)], ratio)
        if of_ratio:
            found[ratio.name] = of_ratio
    return found


def _of_figures(
    pairs: Sequence[Mapping[str, Mapping[str, float]]], ratio: Ratio
) -> dict[str, dict[str, Any]]:
    quotients: dict[str, list[float]] = {}
    for pair in pairs:
        over, under = pair.get(ratio.over), pair.get(ratio.under)
        if over is None or under is None:
            continue
        for name in over:
            if under.get(name):
                quotients.setdefault(name, []).append(over[name] / under[name])
    return {name: spread(values) | {"pairs": values} for name, values in quotients.items()}
