"""What must not be shown: passwords and tokens in URLs and texts, the values of secret options, and
of records where a job leaves them out.

Invariant: the texts of errors and of log records have been through `masked`, and so have the
tracebacks and messages of the command line; whatever a library says of a request ends there.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

MASK: Final = "***"

_USERINFO: Final = re.compile(
    # `user:password@` after `://`. A port is no password, and an address of IPv6 no user. AWS's
    # secret keys contain slashes, so the last @ counts wherever it is.
    r"""(?<=://)(?!\[)[^\s/@:'"]*:(?!\d{1,5}(?:[/?#\s'"]|$))[^\s'"]*@"""
)
_SECRET: Final = (
    r"[\w.-]*(?:password|passwd|secret|token|signature|credential|"
    r"account[._-]?key|access[._-]?key|connection[._-]?string)[\w.-]*|sig"
)
"""Names whose values are secret."""
_NAMED: Final = re.compile(
    rf"""(?i)(?<![\w.-])({_SECRET})(['"]?\s*=\s*|['"]\s*:\s*)('[^']*'|"[^"]*"|[^\s;&,'"]+)"""
)
_SECRET_OPTION: Final = re.compile(rf"(?i){_SECRET}|key|sas|auth\w*|.*headers")
_PLACES: Final = re.compile(r"(?i).*(file|path|uri|url|dir|name|arn)")
"""Names of options and variables that say where a secret is, not what it is."""

_LEAST: Final = 8
"""Characters of a value that is masked wherever it stands: a shorter one is part of other words."""
_hidden: set[str] = set()


class _HiddenRecords:
    """How many jobs of the process leave the values of records out: one is enough for all."""

    jobs = 0


@contextmanager
def records_shown(shown: bool) -> Iterator[None]:
    """In the block, errors and log records have no value of a record unless `shown`."""
    _HiddenRecords.jobs += not shown
    try:
        yield
    finally:
        _HiddenRecords.jobs -= not shown


def shows_records() -> bool:
    return not _HiddenRecords.jobs


def value_text(value: object, limit: int | None = None) -> str:
    """A value of a record as errors show it: its type alone where records are left out."""
    return repr(value)[:limit] if shows_records() else f"a value of type {type(value).__name__}"


def masked(text: str) -> str:
    """The text without the secrets in it: passwords in URLs, `password=...`, hidden values."""
    for value in _hidden:
        text = text.replace(value, MASK)
    if "://" in text:
        text = _USERINFO.sub(f"{MASK}@", text)
    if "=" in text or ":" in text:
        # A template would be parsed by a module that is imported late: too late as a process ends.
        text = _NAMED.sub(lambda match: f"{match[1]}{match[2]}{MASK}", text)
    return text


def hide(options: Mapping[str, Any]) -> None:
    """From now on mask the values of the secret ones among these options or variables."""
    _hidden.update(value for value in _secrets(options) if len(value) >= _LEAST)


def holds_secret(url: str) -> bool:
    """Whether a URL has a password or a token in it."""
    return "://" in url and bool(_USERINFO.search(url) or _NAMED.search(url.partition("?")[2]))


def _secrets(options: Mapping[str, Any]) -> Iterator[str]:
    for name, value in options.items():
        if isinstance(value, Mapping):
            yield from _secrets(value)
        elif (
            isinstance(value, str)
            and _SECRET_OPTION.fullmatch(str(name))
            and not _PLACES.fullmatch(str(name))
        ):
            yield value


class LogFields(dict[str, object]):
    """The fields of a record, without secrets; `lines line` is a number and its noun: 2 lines."""

    def __init__(self, fields: Mapping[str, object]) -> None:
        super().__init__({name: _without_secret(value) for name, value in fields.items()})

    def __missing__(self, key: str) -> str:
        name, _, noun = key.partition(" ")
        return f"{self[name]:,} {noun}{'' if self[name] == 1 else 's'}"


def _without_secret(value: object) -> object:
    """A field as it is, or its text where that had a secret in it."""
    is_text = isinstance(value, str | BaseException)
    return text if is_text and (text := masked(str(value))) != str(value) else value
