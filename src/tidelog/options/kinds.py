"""The kinds of values that options take: what each reads, accepts and shows.

Sizes are whole numbers of bytes in Python, times are seconds; texts carry units.
"""

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple, Protocol, TypeVar

from tidelog.options.units import parse_duration, parse_size, show_duration, show_size

T = TypeVar("T")


class Kind(Protocol):
    """What values an option takes; sizes are bytes and times seconds in Python."""

    in_python: ClassVar[str] = ""
    """How a value is written in Python, where texts are of no use."""

    @property
    def expected(self) -> str:
        """The values that are accepted, for people."""

    def read(self, raw: object) -> Any:
        """The value of a text, or of a value in a TOML file; raises ValueError, with what it is
        instead, when it is none of this kind. Does not look at the range.
        """

    def holds(self, value: Any) -> bool:
        """Whether a value has the right type and lies in the range."""

    def show(self, value: Any) -> str:
        """The text of a value, which `read` takes."""
        return str(value)


class Range(NamedTuple):
    """From `minimum` to `maximum`; None: no such limit."""

    minimum: float | None = None
    maximum: float | None = None
    exclusive: bool = False
    """`minimum` itself is not in the range."""

    def holds(self, value: float) -> bool:
        """Whether a number lies in the range; nothing that is not a number does."""
        if value != value or (self.maximum is not None and value > self.maximum):  # noqa: PLR0124
            return False
        if self.minimum is None:
            return True
        return value > self.minimum if self.exclusive else value >= self.minimum

    def text(self, show: Callable[[Any], str]) -> str:
        """The range for people; empty when there is none."""
        minimum = None if self.minimum is None else show(self.minimum)
        if self.maximum is not None:
            first = f"more than {minimum} and at most" if self.exclusive else f"from {minimum} to"
            return f"{first} {show(self.maximum)}"
        if minimum is None:
            return ""
        return f"more than {minimum}" if self.exclusive else f"at least {minimum}"


ABOVE_ZERO: Final = Range(0, exclusive=True)


@dataclass(frozen=True, slots=True)
class _Numeric(Kind):
    range: Range

    def holds(self, value: Any) -> bool:
        typed = isinstance(value, int | float) and not isinstance(value, bool)
        return typed and self.range.holds(value)


class _Whole(_Numeric):
    def holds(self, value: Any) -> bool:
        return isinstance(value, int) and super().holds(value)


@dataclass(frozen=True, slots=True)
class Duration(_Numeric):
    """A length of time, in seconds."""

    in_python = "seconds, such as 0.25 for 250 ms"

    range: Range = Range(0.0)

    @property
    def expected(self) -> str:
        return f"a time with its unit, such as 250 ms or 2 min; {self.range.text(show_duration)}"

    def read(self, raw: object) -> float:
        if isinstance(raw, int | float) and not isinstance(raw, bool) and raw != 0:
            raise ValueError(f"{raw}, which has no unit")
        seconds = parse_duration(str(raw).strip())
        if seconds is None:
            raise ValueError(repr(raw))
        return seconds

    def show(self, value: Any) -> str:
        return show_duration(value)


@dataclass(frozen=True, slots=True)
class Size(_Numeric):
    """A number of bytes, or of bytes a second."""

    in_python = "bytes, such as 64 << 20 for 64 MiB"

    range: Range = Range(1)
    per_second: bool = False

    @property
    def expected(self) -> str:
        what = "a rate such as 50 MB/s" if self.per_second else "a size such as 64 MiB"
        return f"{what}; {self.range.text(self.show)}"

    def read(self, raw: object) -> int:
        if isinstance(raw, bool | float):
            raise ValueError(repr(raw))
        text = str(raw).strip()
        size = parse_size(text.removesuffix("/s").rstrip() if self.per_second else text)
        if size is None:
            raise ValueError(repr(raw))
        return size

    def holds(self, value: Any) -> bool:
        return (self.per_second or isinstance(value, int)) and _Numeric.holds(self, value)

    def show(self, value: Any) -> str:
        return show_size(int(value)) + ("/s" if self.per_second else "")


class Integer(_Whole):
    @property
    def expected(self) -> str:
        return f"a whole number; {self.range.text(str)}"

    def read(self, raw: object) -> int:
        return _convert(raw, int)


class WorkerCount(_Whole):
    """A number of processes, or as many as there are cores for this one."""

    in_python = "a number; `auto` is a word of files and commands"

    @property
    def expected(self) -> str:
        return f"a whole number or auto, the number of cores; {self.range.text(str)}"

    def read(self, raw: object) -> int:
        return _cores() if raw == "auto" else _convert(raw, int)


def _cores() -> int:
    affinity = getattr(os, "sched_getaffinity", None)  # not on macOS
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


class Number(_Numeric):
    @property
    def expected(self) -> str:
        return f"a number; {self.range.text(self.show)}"

    def read(self, raw: object) -> float:
        return _convert(raw, float)

    def show(self, value: Any) -> str:
        return f"{value:.15g}"


@dataclass(frozen=True, slots=True)
class Choice(Kind):
    words: tuple[str, ...]

    @property
    def expected(self) -> str:
        return f"one of {', '.join(self.words)}"

    def read(self, raw: object) -> str:
        return _convert(raw, str)

    def holds(self, value: Any) -> bool:
        return value in self.words


class Flag(Kind):
    expected = "true or false"

    def read(self, raw: object) -> bool:
        return _convert(raw, bool)

    def holds(self, value: Any) -> bool:
        return isinstance(value, bool)

    def show(self, value: Any) -> str:
        return "true" if value else "false"


class PathKind(Kind):
    in_python = "a pathlib.Path"
    expected = "a path"

    def read(self, raw: object) -> Path:
        text = _convert(raw, str)
        if not text:
            raise ValueError("an empty text")
        return Path(text)

    def holds(self, value: Any) -> bool:
        return isinstance(value, Path)


_KEY_TEXT: Final = re.compile(r"[A-Za-z0-9+/]{43}=|[0-9a-fA-F]{64}")

NOT_ENCRYPTED: Final = "not encrypted"
"""The word for no key."""


class KeyPlace(Kind):
    """Where an encryption key is found; never the key itself."""

    in_python = "a text"
    expected = "the path of a key file, env:NAME or aws-kms:KEY"

    def read(self, raw: object) -> str:
        text = _convert(raw, str).strip()
        if not text:
            raise ValueError("an empty text")
        if _KEY_TEXT.fullmatch(text):  # not shown: it is a secret
            raise ValueError("a key itself, which others can see there")
        return text

    def holds(self, value: Any) -> bool:
        return isinstance(value, str)


class Names(Kind):
    """Several names, in one text with commas between them."""

    in_python = "a tuple of names"
    expected = "names: a list in TOML, elsewhere with commas between them"

    def read(self, raw: object) -> tuple[str, ...]:
        if isinstance(raw, str):
            raw = [name.strip() for name in raw.split(",") if name.strip()]
        return tuple(_convert(raw, list[str]))

    def holds(self, value: Any) -> bool:
        return (
            isinstance(value, Sequence)
            and not isinstance(value, str)
            and all(isinstance(name, str) and name for name in value)
        )

    def show(self, value: Any) -> str:
        return ",".join(value)


def _convert(raw: object, target_type: type[T]) -> T:
    import msgspec  # noqa: PLC0415  # takes as long as click, and `--help` reads no texts

    try:
        # Not strict: texts of numbers and of yes and no are what environments hold.
        return msgspec.convert(raw, target_type, strict=False)
    except msgspec.ValidationError:
        raise ValueError(repr(raw)) from None
