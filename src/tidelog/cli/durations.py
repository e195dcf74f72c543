"""Durations on the command line: 500ms, 1s, 1.5m, 2h."""

import re
from typing import Final

import click

_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_FORM: Final = re.compile(r"(\d+(?:\.\d+)?|\.\d+)(ms|s|m|h)")


def duration(text: str) -> float:
    """Seconds of a positive time with its unit; an option's type. Raises BadParameter."""
    match = _FORM.fullmatch(text)
    if match is None or float(match[1]) == 0:
        raise click.BadParameter(f"{text!r} is no duration; write 500ms, 1s, 1.5m or 2h")
    return float(match[1]) * _SECONDS[match[2]]
