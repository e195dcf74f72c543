"""The plug-in's own options: names, defaults, and what values they take.

Invariants: one table describes every option, for Python arguments, for the command line and for
the settings; a value is passed on only in Spark's notation and only if the plug-in takes it.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from tidelog.errors import ConfigError

PREFIX: Final = "spark.tidelog."

OptionValue = str | int | bool
"""What an option takes: Spark's notation, a number, or yes or no."""

_BYTE_UNITS: Final = {
    **{"b": 1, "": 1, "k": 1 << 10, "kb": 1 << 10, "m": 1 << 20, "mb": 1 << 20},
    **{"g": 1 << 30, "gb": 1 << 30, "t": 1 << 40, "tb": 1 << 40},
}
_TIME_UNITS: Final = {
    **{"us": 0.001, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000},
    **{"h": 3_600_000, "d": 86_400_000},
}
_AMOUNT: Final = re.compile(r"(\d+)([a-z]*)")
_SCHEMES: Final = re.compile(r"[a-z][a-z0-9+.-]*(,[a-z][a-z0-9+.-]*)*")


@dataclass(frozen=True, slots=True)
class PluginOption:
    """One option: `spark.tidelog.<name>` in Spark's settings."""

    name: str
    default: str
    amount: Callable[[str], int | None]
    """What a text in Spark's notation comes to; None when it is no value of this option."""
    expected: str
    help: str

    @property
    def key(self) -> str:
        """The setting's full name."""
        return PREFIX + self.name

    @property
    def argument(self) -> str:
        """The name in Python, such as `part_bytes` for `part.bytes`."""
        return re.sub("[A-Z]", lambda match: f"_{match[0].lower()}", self.name).replace(".", "_")


def bytes_of(text: str) -> int | None:
    """Bytes in Spark's notation, such as `8m`; None for anything else."""
    return _scaled(text, _BYTE_UNITS)


def milliseconds_of(text: str) -> int | None:
    """A length of time in Spark's notation, such as `10ms`; None for anything else."""
    return _scaled(text, _TIME_UNITS)


def _scaled(text: str, units: Mapping[str, float]) -> int | None:
    match = _AMOUNT.fullmatch(text.strip().lower())
    if match is None or match[2] not in units:
        return None
    return int(int(match[1]) * units[match[2]])


def _positive(amount: Callable[[str], int | None]) -> Callable[[str], int | None]:
    return lambda text: amount(text) or None


def _integer(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() else None


def _schemes(text: str) -> int | None:
    return len(text.split(",")) if text == "" or _SCHEMES.fullmatch(text) else None


_BYTES: Final = (_positive(bytes_of), "bytes, more than 0, such as 8m")
_TIME: Final = (_positive(milliseconds_of), "a time above 0 with its unit, such as 60s")

OPTIONS: Final = (
    PluginOption(
        *("segment.bytes", "8m", *_BYTES),
        "A segment that has grown to this is uploaded while the batch still runs.",
    ),
    PluginOption(
        *("part.bytes", "1m", *_BYTES),
        "Changelogs up to this size go to the driver, which packs those of all executors.",
    ),
    PluginOption(
        *("commit.bytes", "256k", bytes_of, "bytes, such as 256k; 0 for none"),
        "What the driver has of a batch is in its commit, without a segment, up to this size.",
    ),
    PluginOption(
        *("inFlight.bytes", "64m", *_BYTES),
        "Bytes of changelogs that the driver holds; executors upload the rest themselves.",
    ),
    PluginOption(
        *("upload.threads", "4", _positive(_integer), "a number, 1 or more"),
        "Parallel uploads: of the driver for a query, of an executor for a large changelog.",
    ),
    PluginOption(
        *("upload.deadline", "60s", *_TIME), "How long an upload is retried before it has failed."
    ),
    PluginOption(
        *("barrier.timeout", "120s", *_TIME),
        "How long the driver waits for a batch to become durable before the query fails.",
    ),
    PluginOption(
        *("snapshot.stagger", "true", {"true": 1, "false": 0}.get, "true or false"),
        "Spread snapshots over batches, each state store at its own phase.",
    ),
    PluginOption(
        *("snapshot.interval", "4min", milliseconds_of),
        *("a time with its unit, such as 4min", "How rarely a store that commits often snapshots."),
    ),
    PluginOption(
        *("put.schemes", "s3a", _schemes, "names of schemes joined by commas"),
        "File systems on which atomic files are one conditional PUT, not a rename.",
    ),
    PluginOption(
        *("cache.bytes", "64m", *_BYTES),
        "Bytes of segments an executor keeps in memory while it restores.",
    ),
)


def render(option: PluginOption, value: OptionValue) -> str:
    """The value in Spark's notation; raises ConfigError when the option does not take it."""
    text = str(value).lower() if isinstance(value, bool) else str(value).strip()
    if option.amount(text) is None:
        raise ConfigError(
            f"option {option.key}",
            expected=option.expected,
            found=repr(value),
            action="correct it, or leave it out for the default " + option.default,
        )
    return text


def check_together(settings: Mapping[str, str]) -> None:
    """Raise ConfigError for options that exclude each other; `settings` are texts by full name."""
    texts = {o.name: settings.get(o.key, o.default) for o in OPTIONS}
    amounts = {o.name: o.amount(texts[o.name]) or 0 for o in OPTIONS}
    for larger, smaller in _ORDERS:
        if amounts[larger] < amounts[smaller]:
            raise ConfigError(
                f"option {PREFIX}{larger}",
                expected=f"at least {PREFIX}{smaller}, {texts[smaller]}",
                found=texts[larger],
                action="raise the first or lower the second",
            )


_ORDERS: Final = (
    ("inFlight.bytes", "segment.bytes"),
    ("segment.bytes", "part.bytes"),
    ("barrier.timeout", "upload.deadline"),
)
