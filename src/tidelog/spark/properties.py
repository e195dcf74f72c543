"""Spark's settings as users write them: `key=value` arguments and spark-defaults.conf.

Invariant: the last of several values of a key wins, as it does in Spark.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tidelog.errors import ConfigError

_LINE: Final = re.compile(r"([^\s=:]+)\s*[\s=:]\s*(.*)")


def read_properties(path: Path) -> dict[str, str]:
    """Settings of a file like spark-defaults.conf; raises ConfigError when it cannot be read."""
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as cause:
        raise ConfigError(
            f"properties file {path}",
            expected="lines of a setting and its value",
            found=str(cause),
            action="correct --properties-file",
        ) from cause
    found = {}
    for number, line in enumerate(map(str.strip, lines), start=1):
        if not line or line.startswith(("#", "!")):
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            raise ConfigError(
                f"properties file {path}, line {number}",
                expected="a setting and its value",
                found=repr(line),
                action="correct the line",
            )
        found[match[1]] = match[2].strip()
    return found


def parse_arguments(arguments: Iterable[str]) -> dict[str, str]:
    """Settings given as `key=value`; raises ConfigError for anything else."""
    found = {}
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if not key or not equals:
            raise ConfigError(
                f"option --conf {argument!r}",
                expected="name=value",
                action="correct it",
            )
        found[key.strip()] = value.strip()
    return found
