"""Texts for times and sizes: "250 ms", "64 MiB".

Invariants: k or K, M, G and T are thousands, Ki, Mi, Gi and Ti are 1,024s; a text that is made here
is read back as the same number.
"""

import math
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from tidelog.errors import ConfigError

Length = int | timedelta | str
"""A length of time: milliseconds, a `timedelta`, or a text such as `30s` or `1m`."""

_SECONDS: Final = {
    **{"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0},
    **{"h": 3600.0, "d": 86_400.0},
}
_SHOWN_SECONDS: Final = (("d", 86_400.0), ("h", 3600.0), ("min", 60.0))
_FACTORS: Final[dict[str, int]] = {
    "": 1,
    "K": 1000,
    **{letter: 1000**power for power, letter in enumerate("kMGT", 1)},
    **{f"{letter}i": 1024**power for power, letter in enumerate("KMGT", 1)},
}
_SHOWN_FACTORS: Final = ("Ti", "Gi", "Mi", "Ki", "G", "M", "k")

NUMBER: Final = r"(\d+(?:\.\d*)?|\.\d+)"
"""A number with decimals, as a group of a regular expression."""

_LONGEST_MS: Final = 1 << 61
"""A length of time is shorter, so that what ends so long after a time has a time as its end."""
_DURATION: Final = re.compile(rf"{NUMBER} ?({'|'.join(_SECONDS)})")
_COUNT: Final = re.compile(rf"{NUMBER}([kKMGT]?)")
_SIZE: Final = re.compile(rf"{NUMBER} ?((?:[kKMGT]|[KMGT]i)?)B?")


def parse_duration(text: str) -> float | None:
    """Seconds of a time with its unit, such as `250 ms`; 0 needs none. None for other texts."""
    if text == "0":
        return 0.0
    return _amount(_DURATION.fullmatch(text), _SECONDS)


def milliseconds(what: str, length: Length, *, signed: bool = False) -> int:
    """Whole milliseconds of a length of time, below zero if `signed`; raises ConfigError for `what`
    that is none, or 2**61 ms or longer.
    """
    value: float | None = None
    if isinstance(length, timedelta):
        value = length / timedelta(milliseconds=1)
    elif isinstance(length, str):
        text = length.strip()
        seconds = parse_duration(text.removeprefix("-"))
        if seconds is not None:
            value = round(seconds * (-1000 if text[0] == "-" else 1000), 6)
    elif isinstance(length, int) and not isinstance(length, bool):
        value = length
    minimum = 1 - _LONGEST_MS if signed else 0
    if value is None or not minimum <= value < _LONGEST_MS or value != int(value):
        raise ConfigError(
            what,
            expected="whole milliseconds, less than 2**61: an int, a timedelta, or a text such as "
            "30s or 1m",
            found=repr(length),
            action="correct it",
        )
    return int(value)


def parse_count(text: str) -> float | None:
    """A number such as 20000, 20k or 1.5M. None for other texts."""
    return _amount(_COUNT.fullmatch(text), _FACTORS)


def parse_size(text: str) -> int | None:
    """Bytes of a size such as `200`, `500 MB` or `2GiB`. None for other texts."""
    size = _amount(_SIZE.fullmatch(text), _FACTORS)
    return None if size is None else int(size)


def _amount(match: re.Match[str] | None, units: Mapping[str, float]) -> float | None:
    """A number in its unit; None for a text that is none, and for one too large for a float."""
    amount = math.inf if match is None else float(match[1]) * units[match[2]]
    return None if amount == math.inf else amount


def plural(number: int, noun: str, nouns: str | None = None) -> str:
    """A number with its noun: 1 batch, 2 batches; `nouns` where it does not end with an s."""
    return f"{number:,} {noun if number == 1 else nouns or f'{noun}s'}"


def show_duration(seconds: float) -> str:
    """The text of a time: a whole number of days, hours or minutes, else seconds or less."""
    for unit, length in _SHOWN_SECONDS:
        if seconds >= length and seconds % length == 0:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.15g} s" if seconds == 0 or seconds >= 1 else f"{seconds * 1e3:.15g} ms"


def show_size(count: int) -> str:
    """The text of a number of bytes, in the largest unit of which it is a whole number."""
    for unit in _SHOWN_FACTORS:
        if count and count % _FACTORS[unit] == 0:
            return f"{count // _FACTORS[unit]} {unit}B"
    return f"{count} B"
