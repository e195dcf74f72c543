"""Durations, sizes and counts on the command line: options' types, and texts for people.

Invariants: k, M and G are thousands, Ki, Mi and Gi are 1,024s, as everywhere in metering; what
cannot be parsed raises BadParameter.
"""

from typing import Final

import click

from tidelog.errors import ConfigError
from tidelog.options.units import milliseconds, parse_count, parse_duration, parse_size


def duration(text: str) -> float:
    """Seconds of a positive time with its unit; an option's type. Raises BadParameter."""
    seconds = parse_duration(text)
    if not seconds:
        raise click.BadParameter(f"{text!r} is no duration above 0; write 500ms, 1s, 1.5m or 2h")
    return seconds


def duration_text(seconds: float) -> str:
    """A duration as the command line takes it: 500ms, 1.5s, 20s, 3m, 1.5h."""
    for unit, length in (("h", 3_600.0), ("m", 60.0)):
        if seconds >= length and (seconds / length * 2).is_integer():
            return f"{seconds / length:g}{unit}"
    return f"{seconds:.15g}s" if seconds >= 1 else f"{seconds * 1000:.15g}ms"


def count(text: str) -> float:
    """A number such as 20000, 20k or 1.5M; an option's type. Raises BadParameter."""
    number = parse_count(text)
    if number is None:
        raise click.BadParameter(f"{text!r} is no number; write 20000, 20k or 1.5M")
    return number


def to_bytes(text: str) -> int:
    """Bytes of a size such as 200, 500MB or 2GiB; an option's type. Raises BadParameter."""
    size_bytes = parse_size(text)
    if size_bytes is None:
        raise click.BadParameter(f"{text!r} is no size; write 200, 500MB or 2GiB")
    return size_bytes


def latency(text: str) -> float:
    """Seconds of a duration that may be 0; an option's type. Raises BadParameter."""
    return 0.0 if text in ("0", "0ms", "0s") else duration(text)


def bounds(text: str) -> tuple[float, float]:
    """Seconds of two lengths of time such as -1m,5m; an option's type. Raises BadParameter."""
    try:
        lower, upper = (milliseconds("a bound", bound, signed=True) for bound in text.split(","))
    except (ConfigError, ValueError) as error:
        raise click.BadParameter(f"{text!r} are no bounds; write -1m,5m or 0s,30s") from error
    return lower / 1000, upper / 1000


def window(text: str) -> tuple[float, float]:
    """Seconds of a window and of its slide, such as 10m or 10m,1m; an option's type. Raises
    BadParameter.
    """
    lengths = [duration(part) for part in text.split(",")]
    if len(lengths) > 2 or lengths[0] < lengths[-1]:
        raise click.BadParameter(f"{text!r} is no window; write 10m, or 10m,1m for a slide of 1m")
    return lengths[0], lengths[-1]


def size(count: int) -> str:
    """A number of bytes for people."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def age(milliseconds: int) -> str:
    """A length of time for people."""
    seconds = max(0, milliseconds) // 1000
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"


def seconds_text(seconds: float | None) -> str:
    """A duration for people."""
    if seconds is None:
        return "-"
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


_SMALL: Final = 100


def short(number: float) -> str:
    """A number for people: 12.3 M, 45.6 k, 789, 1.2."""
    for unit, factor in ((" G", 1e9), (" M", 1e6), (" k", 1e3)):
        if number >= factor:
            return f"{number / factor:.1f}{unit}"
    return f"{number:.0f}" if number >= _SMALL else f"{number:.1f}"


def span(seconds: float) -> str:
    """A time that something takes, for people: 0.07 s, 29.7 s, 41.5 min, 3.2 h."""
    if seconds < 120:
        return f"{seconds:.2f} s" if seconds < 1 else f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7_200 else f"{seconds / 3600:.1f} h"


def amount(money: float) -> str:
    """An amount of money without its currency."""
    return f"{money:.2f}"
