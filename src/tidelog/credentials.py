"""What must not be shown: passwords and tokens in URLs and texts, and the values of secret options.

Invariant: the texts of errors and of log records have been through `masked`, and so have the
tracebacks and messages of the command line; whatever a library says of a request ends there.
"""

import re
from collections.abc import Iterator, Mapping
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
