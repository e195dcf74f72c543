"""Numbers, spreads and settings as people read them.

Invariant: a number keeps three significant digits, and all digits before the decimal point.
"""

import math
from collections.abc import Mapping
from typing import Any, Final

from tidelog_bench.experiment import Setting

_TO: Final = "\N{EN DASH}"
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


def span(spread: Mapping[str, Any]) -> str:
    """From min to max, or nothing where all values are the same."""
    low, high = number(spread["min"]), number(spread["max"])
    return "" if low == high else f"{low}{_TO}{high}"


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
