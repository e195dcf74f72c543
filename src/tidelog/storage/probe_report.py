"""What a probe of a store found.

Invariant: a report is data; how it is shown is decided by who asked.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True)
class Check:
    """One question and its answer; `message` says what was found."""

    name: str
    passed: bool
    message: str


@dataclass(frozen=True, slots=True)
class Latency:
    """How long calls of one operation took, in milliseconds."""

    operation: str
    calls: int
    min_ms: float
    median_ms: float
    max_ms: float

    @classmethod
    def of(cls, operation: str, seconds: Sequence[float]) -> "Latency":
        """Summary of one or more durations in seconds."""
        low, middle, high = min(seconds), median(seconds), max(seconds)
        return cls(operation, len(seconds), low * 1000, middle * 1000, high * 1000)


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """The answers in the order they were asked."""

    url: str
    checks: tuple[Check, ...]
    latencies: tuple[Latency, ...]

    @property
    def passed(self) -> bool:
        """True when every check did."""
        return all(check.passed for check in self.checks)
