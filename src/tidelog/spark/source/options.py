"""The options of the source, read from Spark's texts.

Invariants: an option that is unknown, malformed or without effect on the view is refused, so a
typing error never changes what is read; every error names the option as its documentation does;
names are compared without regard to case, as Spark does.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeVar, cast

from tidelog.errors import ConfigError
from tidelog.options.kinds import KeyPlace
from tidelog.spark.checkpoint.location import store_url
from tidelog.spark.plugin.options import bytes_of
from tidelog.spark.source.filters import Filter, Intervals
from tidelog.spark.source.views import VIEWS, SourceView
from tidelog.storage.open import StoreAccess

T = TypeVar("T")

Texts = Mapping[str, str]
"""Options by name in lower case."""

Slots = Literal["latest", "all", "these"]

BundleBytes = int | Literal["auto"]
"""Bytes that one task reads; "auto": as suits the total."""

NARROWING: Final = {
    "slot": "slot",
    "operator": "operator",
    "subtask": "subtask",
    "seqno": "seqno",
    "keyGroup": "key_group",
}
"""Options that narrow what is read, and the column each is about."""

_NAMES: Final = (
    *("path", "view", *NARROWING, "columns", "decode"),
    *("partitionBytes", "workDir", "endpoint", "encryptionKey"),
)
_OF_A_SLOT: Final = ("changes", "state")
"""Views that are of a checkpoint, and so of the newest one unless another is named."""


@dataclass(frozen=True)
class Options:
    """What a user asked for."""

    url: str
    view: SourceView
    slots: Slots
    """Which checkpoints; `these` are the slots that `filter` has."""
    filter: Filter
    columns: tuple[str, ...] | None
    decode: bool
    partition_bytes: BundleBytes
    """Objects are read together up to this size; 0: each is read on its own."""
    work_dir: str | None
    access: StoreAccess


def read_options(given: Mapping[str, str]) -> Options:
    """Read the options of a load; raises ConfigError naming the option that is wrong."""
    texts = {name.lower(): text.strip() for name, text in given.items()}
    for name in given:
        if name.lower() not in map(str.lower, _NAMES):
            expected = f"one of {', '.join(_NAMES)}"
            raise _wrong(name, expected, "no such option", "correct its name or remove it")
    view = _value(texts, "view", "changes", VIEWS.get, f"one of {', '.join(VIEWS)}")
    return Options(
        url=_url(texts),
        view=view,
        slots=_slots(texts, view),
        filter=_filter(texts, view),
        columns=_listed(texts["columns"]) if "columns" in texts else None,
        decode=_value(texts, "decode", "false", _flag, "true or false"),
        partition_bytes=_value(
            texts, "partitionBytes", "auto", _bundle_bytes, "auto or bytes, such as 8m"
        ),
        work_dir=texts.get("workdir"),
        access=StoreAccess(texts.get("endpoint"), _encryption_key(texts)),
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


def _slots(texts: Texts, view: SourceView) -> Slots:
    text = texts.get("slot", "latest" if view.name in _OF_A_SLOT else "all")
    words = ("latest", "all") if view.name in _OF_A_SLOT else ("all",)
    return cast("Slots", text) if text in words else "these"


def _filter(texts: Texts, view: SourceView) -> Filter:
    numbers: dict[str, Intervals] = {}
    names: dict[str, frozenset[str]] = {}
    for option, column in NARROWING.items():
        if option.lower() not in texts:
            continue
        if column not in view.narrowed_by:
            views = " or ".join(each.name for each in VIEWS.values() if column in each.narrowed_by)
            found = "a load in which it has no effect"
            raise _wrong(option, f"its use with view {views}", found, "remove it, or use it there")
        if option == "operator":
            names[column] = frozenset(_listed(texts[option]))
        elif option != "slot" or _slots(texts, view) == "these":
            expected = "numbers such as 3 or 0,4-6 or 100-"
            if option == "slot":
                words = "latest, all" if view.name in _OF_A_SLOT else "all"
                expected = f"{words}, or {expected}"
            numbers[column] = _value(texts, option, "", Intervals.parse, expected)
    return Filter(numbers, names)


def _bundle_bytes(text: str) -> BundleBytes | None:
    return "auto" if text.lower() == "auto" else bytes_of(text)


def _value(
    texts: Texts, name: str, default: str, read: Callable[[str], T | None], expected: str
) -> T:
    """The value of an option; raises ConfigError for a text that `read` has no value for."""
    text = texts.get(name.lower(), default)
    found = read(text)
    if found is None:
        raise _wrong(name, expected, repr(text))
    return found


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
