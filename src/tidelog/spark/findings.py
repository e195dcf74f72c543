"""What a check found: fine, doubtful, or not safe, and the setting to change."""

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check; `action` is None when there is nothing to do."""

    check: str
    verdict: Verdict
    found: str
    action: str | None = None


def ok(check: str, found: str) -> Finding:
    """Nothing to do."""
    return Finding(check, "ok", found)


def warn(check: str, found: str, action: str) -> Finding:
    """It works, but something may be not as intended."""
    return Finding(check, "warn", found, action)


def fail(check: str, found: str, action: str) -> Finding:
    """The guarantees do not hold."""
    return Finding(check, "fail", found, action)
