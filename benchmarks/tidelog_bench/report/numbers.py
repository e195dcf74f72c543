"""The numbers of a report: medians with their spread, ratios pair by pair, whether a ratio says
something; and how people read them.

Invariants: a ratio is formed within one pair only, because the machine's speed drifts. Without five
pairs nothing is beyond noise: when two variants are equally fast, five pairs all lie on one side of
1 in one of sixteen sessions. A number keeps three significant digits, and all digits before the
decimal point.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

from tidelog_bench.experiment import Figure, Ratio, Setting
from tidelog_bench.session.records import TrialRecord

Spread = dict[str, Any]
"""Median, min, max and n; of a ratio `pairs` as well, the ratio of each."""
ENOUGH: Final = 5
"""Pairs that a verdict needs."""


def few(pairs: int) -> str:
    """What is to be said of a session with fewer pairs than a verdict needs."""
    counted = "1 pair" if pairs == 1 else f"{pairs} pairs"
    return f"{counted}: too few to tell a difference from noise; that takes {ENOUGH}"


def spread(values: Sequence[float]) -> Spread:
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


def ratios(trials: Iterable[TrialRecord], asked: Iterable[Ratio]) -> dict[str, dict[str, Spread]]:
    """`over / under`, then figure, then the spread of the ratios."""
    by_pair: dict[int, dict[str, Mapping[str, float]]] = {}
    for trial in sorted(trials, key=lambda trial: trial.pair):
        by_pair.setdefault(trial.pair, {})[trial.variant] = trial.figures
    found: dict[str, dict[str, Spread]] = {}
    for ratio in asked:
        quotients: dict[str, list[float]] = {}
        for pair in by_pair.values():
            over, under = pair.get(ratio.over, {}), pair.get(ratio.under, {})
            for name in over:
                if under.get(name):
                    quotients.setdefault(name, []).append(over[name] / under[name])
        if quotients:
            found[ratio.name] = {
                name: spread(values) | {"pairs": values} for name, values in quotients.items()
            }
    return found


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


def verdict(ratio: Spread, figure: Figure) -> Verdict:
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


_UNITS: Final = {
    "dollars_per_day": "$ a day",
    "_mb_per_s": "MB/s",
    "_per_s": "/s",
    "_bytes": "bytes",
    "_ms": "ms",
    "_mb": "MB",
    "_kb": "kB",
    "_gb": "GB",
    "_s": "s",
}
"""Endings of the names of figures and settings, the longest first, and how they are written."""


def number(value: float) -> str:
    """Three significant digits: `1,234,567`, `12.3`, `0.0123`, `0`."""
    if not math.isfinite(value):
        return str(value)
    if value == 0:
        return "0"
    digits = 2 - math.floor(math.log10(abs(value)))
    if digits <= 0:
        return f"{value:,.0f}"
    if digits > 8:
        return f"{value:.3g}"
    text = f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".")


def times(ratio: float) -> str:
    """A ratio: `0.134x`, `7x`."""
    return f"{number(ratio)}x"


def quoted(spread: Spread, figure: Figure, *, ratio: bool) -> str:
    """`123 ms (110-133)`, `0.28x (0.25-0.34)`: as the README quotes it."""
    unit, scale = unit_of_name(figure.name), 1.0
    if unit == "ms" and spread["median"] >= 1000 and not ratio:
        unit, scale = "s", 1000.0
    median, low, high = (_rounded(spread[name] / scale) for name in ("median", "min", "max"))
    between = f" ({low}-{high})" if low != high else ""
    if ratio:
        said = verdict(spread, figure)
        return f"{median}x{between}{', within noise' if said is Verdict.NOISE else ''}"
    if unit.startswith("$"):
        return f"${median}{unit[1:]}{between}"
    # A rate has its unit in the title of the figure.
    return f"{median}{'' if unit.startswith('/') or not unit else f' {unit}'}{between}"


def _rounded(value: float) -> str:
    """Two digits that count, three from 100 on."""
    return number(float(f"{value:.{3 if abs(value) >= 100 else 2}g}"))


def unit_of_name(name: str) -> str:
    """The unit that the name of a figure ends with; nothing where it ends with none."""
    return _UNITS.get(_ending(name), "")


def _ending(name: str) -> str:
    return next((ending for ending in _UNITS if f"_{name}".endswith(ending)), "")


def setting(name: str, value: Setting) -> str:
    """A setting with its unit, where the name ends with one: `latency 30 ms`."""
    words = name.replace("_", " ")
    if value is None:
        return f"no {words}"
    if isinstance(value, bool):
        return f"{words} {'yes' if value else 'no'}"
    if isinstance(value, str):
        return f"{words} {value}"
    stem = f"_{name}".removesuffix(_ending(name)).replace("_", " ")
    return f"{stem} {number(value)} {unit_of_name(name)}".strip()


def label(settings: Mapping[str, Setting], shared: Mapping[str, Setting]) -> str:
    """The settings of a cell that not all cells share, in one line."""
    return ", ".join(setting(name, of) for name, of in settings.items() if name not in shared)
