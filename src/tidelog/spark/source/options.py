"""The options of the source, read from Spark's texts, and which rows of a view they ask for.

Invariants: an option that is unknown, malformed or without effect on the view is refused, so a
typing error never changes what is read; every error names the option as its documentation does;
names are compared without regard to case, as Spark does. The spans of a set of numbers are closed,
ascending, disjoint and never adjacent, so equal sets are equal values.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Final, Literal, Self, TypeVar, cast

from tidelog.errors import ConfigError
from tidelog.options.kinds import KeyPlace
from tidelog.spark.checkpoint.checkpoint import store_url
from tidelog.spark.plugin.options import bytes_of
from tidelog.spark.source.views import VIEWS, SourceView
from tidelog.storage.open import StoreAccess

T = TypeVar("T")

LOWEST: Final = -(2**63)
HIGHEST: Final = 2**63 - 1
"""The ends of Spark's longest integer."""

_SPAN: Final = re.compile(r"(\d+)(?:(-)(\d*))?")


@dataclass(frozen=True, slots=True)
class Intervals:
    """A set of numbers as spans (first, last), both included."""

    spans: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, spans: Iterable[tuple[int, int]]) -> Self:
        """The union of spans in any order; those that end before they start are empty."""
        merged: list[tuple[int, int]] = []
        for first, last in sorted(span for span in spans if span[0] <= span[1]):
            if merged and first <= merged[-1][1] + 1:
                merged[-1] = merged[-1][0], max(last, merged[-1][1])
            else:
                merged.append((first, last))
        return cls(tuple(merged))

    @classmethod
    def between(cls, first: int = LOWEST, last: int = HIGHEST) -> Self:
        """All numbers from `first` to `last`, both included."""
        return cls.of([(first, last)])

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Numbers and spans such as `3`, `0,4-6` or `100-`; None for any other text."""
        matches = [_SPAN.fullmatch(part.strip()) for part in text.split(",")]
        spans = []
        for match in matches:
            if match is None:
                return None
            first = int(match[1])
            open_end = HIGHEST if match[2] else first
            spans.append((first, int(match[3]) if match[3] else open_end))
        return cls.of(spans) if all(first <= last for first, last in spans) else None

    def __contains__(self, number: int) -> bool:
        return any(first <= number <= last for first, last in self.spans)

    def __and__(self, other: "Intervals") -> "Intervals":
        both = product(self.spans, other.spans)
        return Intervals.of((max(a[0], b[0]), min(a[1], b[1])) for a, b in both)

    def within(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """The parts of [start, end) that are in the set, as (start, end) with the end excluded."""
        for first, last in (self & Intervals.between(start, end - 1)).spans:
            yield first, last + 1


EVERYTHING: Final = Intervals.between()


@dataclass(frozen=True)
class Filter:
    """Takes the rows whose values lie in these sets; a column that is not named may have any."""

    numbers: Mapping[str, Intervals] = field(default_factory=dict)
    texts: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def of(self, column: str) -> Intervals:
        """The numbers that a column may have."""
        return self.numbers.get(column, EVERYTHING)

    def narrows(self, column: str) -> bool:
        """Whether not every value of the column passes; null then does not."""
        return column in self.numbers or column in self.texts

    def accepts(self, **values: int | str) -> bool:
        """Whether a row with these values, by column, passes as far as they tell."""
        return all(
            value in self.of(column)
            if isinstance(value, int)
            else column not in self.texts or value in self.texts[column]
            for column, value in values.items()
        )


Texts = Mapping[str, str]
"""Options by name in lower case."""

Checkpoints = Literal["latest", "all", "these"]

BundleBytes = int | Literal["auto"]
"""Bytes that one task reads; "auto": as suits the total."""

NARROWING: Final = {
    "checkpoint": "checkpoint",
    "operator": "operator",
    "subtask": "subtask",
    "seqno": "seqno",
    "keyGroup": "key_group",
}
"""Options that narrow what is read, and the column each is about."""

_NAMES: Final = (
    *("path", "view", *NARROWING, "columns", "decode"),
    *("partitionBytes", "workDir", "endpoint", "encryptionKey", "beforeEnd"),
)


@dataclass(frozen=True)
class SourceOptions:
    """What a user asked for."""

    url: str
    view: SourceView
    checkpoints: Checkpoints
    """Which checkpoints; `these` are the numbers that `filter` has."""
    filter: Filter
    columns: tuple[str, ...] | None
    decode: bool
    partition_bytes: BundleBytes
    """Objects are read together up to this size; 0: each is read on its own."""
    work_dir: str | None
    access: StoreAccess
    before_end: bool
    """Read the state before the end of the job, which the checkpoint that ended it has as well."""


def read_options(options: Mapping[str, str]) -> SourceOptions:
    """Read the options of a load; raises ConfigError naming the option that is wrong."""
    texts = {name.lower(): text.strip() for name, text in options.items()}
    for name in options:
        if name.lower() not in map(str.lower, _NAMES):
            expected = f"one of {', '.join(_NAMES)}"
            raise _wrong(name, expected, "no such option", "correct its name or remove it")
    view = _value(texts, "view", "changes", VIEWS.get, f"one of {', '.join(VIEWS)}")
    if "beforeend" in texts and view.name != "state":
        raise _wrong("beforeEnd", "its use with view state", f"view {view.name}", "remove it")
    return SourceOptions(
        url=_url(texts),
        view=view,
        checkpoints=_checkpoints(texts, view),
        filter=_filter(texts, view),
        columns=_listed(texts["columns"]) if "columns" in texts else None,
        decode=_value(texts, "decode", "false", _flag, "true or false"),
        partition_bytes=_value(
            texts, "partitionBytes", "auto", _bundle_bytes, "auto or bytes, such as 8m"
        ),
        work_dir=texts.get("workdir"),
        access=StoreAccess(texts.get("endpoint"), _encryption_key(texts)),
        before_end=_value(texts, "beforeEnd", "false", _flag, "true or false"),
    )


def _url(texts: Texts) -> str:
    if not texts.get("path"):
        raise ConfigError(
            "the location to load",
            expected="a path or URL, such as s3://bucket/jobs/counts",
            found="nothing",
            action="pass it to load(...)",
        )
    return store_url(texts["path"])


def _checkpoints(texts: Texts, view: SourceView) -> Checkpoints:
    words = _checkpoint_words(view)
    text = texts.get("checkpoint", words[0])
    return cast("Checkpoints", text) if text in words else "these"


def _checkpoint_words(view: SourceView) -> tuple[str, ...]:
    """Values of option checkpoint besides numbers, the default first."""
    # A view that is of a checkpoint is of the newest one unless another is named.
    return ("latest", "all") if view.name in ("changes", "state") else ("all",)


def _filter(texts: Texts, view: SourceView) -> Filter:
    numbers: dict[str, Intervals] = {}
    names: dict[str, frozenset[str]] = {}
    for option, column in NARROWING.items():
        if option.lower() not in texts:
            continue
        if column not in view.narrowed_by:
            views = " or ".join(
                other.name for other in VIEWS.values() if column in other.narrowed_by
            )
            actual = "a load in which it has no effect"
            raise _wrong(option, f"its use with view {views}", actual, "remove it, or use it there")
        if option == "operator":
            names[column] = frozenset(_listed(texts[option]))
        elif option != "checkpoint" or _checkpoints(texts, view) == "these":
            expected = "numbers such as 3 or 0,4-6 or 100-"
            if option == "checkpoint":
                expected = f"{', '.join(_checkpoint_words(view))}, or {expected}"
            numbers[column] = _value(texts, option, "", Intervals.parse, expected)
    return Filter(numbers, names)


def _bundle_bytes(text: str) -> BundleBytes | None:
    return "auto" if text.lower() == "auto" else bytes_of(text)


def _value(
    texts: Texts, name: str, default: str, read: Callable[[str], T | None], expected: str
) -> T:
    """The value of an option; raises ConfigError for a text that `read` has no value for."""
    text = texts.get(name.lower(), default)
    value = read(text)
    if value is None:
        raise _wrong(name, expected, repr(text))
    return value


def _wrong(option: str, expected: str, found: str, action: str = "correct it") -> ConfigError:
    what = f"option {option} of the tidelog data source"
    return ConfigError(what, expected=expected, found=found, action=action)


def _encryption_key(texts: Texts) -> str | None:
    """Where the key is; raises ConfigError for what looks like a key itself."""
    if "encryptionkey" not in texts:
        return None
    try:
        return KeyPlace().read(texts["encryptionkey"])
    except ValueError as error:
        raise _wrong("encryptionKey", KeyPlace().expected, str(error)) from error


def _flag(text: str) -> bool | None:
    """Yes or no as Spark writes them; None for any other text."""
    return {"true": True, "false": False}.get(text.lower())


def _listed(text: str) -> tuple[str, ...]:
    """Names between commas."""
    return tuple(name.strip() for name in text.split(","))
