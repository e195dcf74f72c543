"""Counters of the requests one store made.

Invariant: `calls` counts what the caller asked for and `attempts` what was sent, so
attempts = calls + retries + hedges for every operation once no call is under way.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

_RECENT: Final = 1024


@dataclass(slots=True)
class OperationMetrics:
    """Counters of one operation; latencies are whole calls, retries included, in seconds."""

    calls: int = 0
    attempts: int = 0
    retries: int = 0
    hedges: int = 0
    hedge_wins: int = 0
    failures: int = 0
    seconds: float = 0.0
    latency_s: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT))


@dataclass(slots=True)
class RequestMetrics:
    """Counters per operation of the port, and payload bytes both ways.

    A failure is a call that raised anything but the answers "absent" and "exists".
    """

    put: OperationMetrics = field(default_factory=OperationMetrics)
    create: OperationMetrics = field(default_factory=OperationMetrics)
    get: OperationMetrics = field(default_factory=OperationMetrics)
    list: OperationMetrics = field(default_factory=OperationMetrics)
    head: OperationMetrics = field(default_factory=OperationMetrics)
    delete: OperationMetrics = field(default_factory=OperationMetrics)
    segment_attempts: int = 0
    """Attempts at writing segments of the log."""
    attempts_per_segment: deque[int] = field(default_factory=lambda: deque(maxlen=_RECENT))
    bytes_written: int = 0
    bytes_read: int = 0
