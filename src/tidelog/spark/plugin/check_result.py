"""What one check of `tidelog spark doctor` says: fine, doubtful, or not safe."""

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check; `action` is None when there is nothing to do."""

    check: str
    verdict: Verdict
    found: str
    action: str | None = None


def ok(check: str, found: str) -> CheckResult:
    """Nothing to do."""
    return CheckResult(check, "ok", found)


def warn(check: str, found: str, action: str) -> CheckResult:
    """The result of a check that passes, although something may be not as intended."""
    return CheckResult(check, "warn", found, action)


def fail(check: str, found: str, action: str) -> CheckResult:
    """The guarantees do not hold."""
    return CheckResult(check, "fail", found, action)
