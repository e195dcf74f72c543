"""Variants of one experiment, alternated in one run, and the ratios of their results.

Invariant: a ratio is formed within one repetition only, because the machine's speed drifts.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

Result = dict[str, Any]
Runs = dict[str, list[Result]]


def alternate(
    variants: Sequence[str], repetitions: int, run: Callable[[str], Result], show: Sequence[str]
) -> Runs:
    """Run all variants `repetitions` times, every other time in reverse order."""
    runs: Runs = {variant: [] for variant in variants}
    total, done, started = len(variants) * repetitions, 0, time.monotonic()
    for repetition in range(repetitions):
        for variant in variants if repetition % 2 == 0 else variants[::-1]:
            result = run(variant)
            runs[variant].append(result)
            done += 1
            elapsed = time.monotonic() - started
            figures = "  ".join(f"{name} {result.get(name)}" for name in show)
            left = elapsed / done * (total - done)
            print(f"[{done}/{total}] {variant}: {figures}  ({_clock(left)} left)", flush=True)
    return runs


def ratios(runs: Runs, over: str, under: str, figure: str) -> dict[str, Any]:
    """`figure` of one variant divided by that of another, repetition by repetition."""
    pairs = zip(runs[over], runs[under], strict=True)
    return spread([a[figure] / b[figure] for a, b in pairs])


def spread(values: Sequence[float]) -> dict[str, Any]:
    """Median with min and max."""
    return {
        "median": round(statistics.median(values), 3),
        "min": round(min(values), 3),
        "max": round(max(values), 3),
        "n": len(values),
    }


def medians(runs: Runs, figure: str) -> dict[str, Any]:
    """The spread of a figure for every variant."""
    return {variant: spread([r[figure] for r in results]) for variant, results in runs.items()}


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
