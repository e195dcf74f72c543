"""Numbers on the command line of `estimate` and `plan`: counts, sizes and money.

Invariant: k, M and G are thousands, Ki, Mi and Gi are 1,024s, as everywhere in metering.
"""

import re
from typing import Final

import click

from tidelog.cli.durations import duration
from tidelog.estimate.targets import Money

_FACTORS: Final[dict[str, int]] = {
    "": 1,
    **{letter: 1000 ** (at + 1) for at, letter in enumerate("kMGT")},
    **{f"{letter}i": 1024 ** (at + 1) for at, letter in enumerate("KMGT")},
}
_NUMBER: Final = r"(\d+(?:\.\d*)?|\.\d+)"
_COUNT: Final = re.compile(rf"{_NUMBER}(k|M|G|T|)")
_SIZE: Final = re.compile(rf"{_NUMBER}(k|M|G|T|Ki|Mi|Gi|Ti|)B?")
_MONEY: Final = re.compile(rf"{_NUMBER} ?([A-Z]{{3}})")


def count(text: str) -> float:
    """A number such as 20000, 20k or 1.5M; an option's type. Raises BadParameter."""
    return _parsed(_COUNT, text, "number; write 20000, 20k or 1.5M")


def size(text: str) -> int:
    """Bytes of a size such as 200, 500MB or 2GiB; an option's type. Raises BadParameter."""
    return int(_parsed(_SIZE, text, "size; write 200, 500MB or 2GiB"))


def latency(text: str) -> float:
    """Seconds of a duration that may be 0; an option's type. Raises BadParameter."""
    return 0.0 if text in ("0", "0ms", "0s") else duration(text)


def money(text: str) -> Money:
    """An amount with its currency, such as 200CNY; an option's type. Raises BadParameter."""
    match = _MONEY.fullmatch(text)
    if match is None:
        raise click.BadParameter(f"{text!r} is no amount; write 200CNY or '19.90 EUR'")
    return Money(float(match[1]), match[2])


def _parsed(form: re.Pattern[str], text: str, expected: str) -> float:
    match = form.fullmatch(text)
    if match is None:
        raise click.BadParameter(f"{text!r} is no {expected}")
    return float(match[1]) * _FACTORS[match[2]]
