"""Texts of options as values; what is none is refused by the option's name.

Invariant: every error names the option as its documentation does, what it takes, and what it got.
"""

from collections.abc import Callable, Mapping
from typing import TypeVar

from tidelog.errors import ConfigError

T = TypeVar("T")

Texts = Mapping[str, str]
"""Options by name in lower case."""


def value(
    texts: Texts, name: str, default: str, read: Callable[[str], T | None], expected: str
) -> T:
    """The value of an option; raises ConfigError for a text that `read` has no value for."""
    text = texts.get(name.lower(), default)
    found = read(text)
    if found is None:
        raise ConfigError(
            f"option {name} of the tidelog data source",
            expected=expected,
            found=repr(text),
            action="correct it",
        )
    return found


def flag(text: str) -> bool | None:
    """Yes or no as Spark writes them; None for any other text."""
    return {"true": True, "false": False}.get(text.lower())


def whole(text: str) -> int | None:
    """A number from 0 on; None for any other text."""
    return int(text) if text.isascii() and text.isdecimal() else None


def listed(text: str) -> tuple[str, ...]:
    """Names between commas."""
    return tuple(name.strip() for name in text.split(","))


def without_effect(option: str, where: str) -> ConfigError:
    """The error for an option that this load would ignore."""
    return ConfigError(
        f"option {option} of the tidelog data source",
        expected=f"its use with {where}",
        found="a load in which it has no effect",
        action="remove it, or use it there",
    )
