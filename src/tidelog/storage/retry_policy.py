"""How long requests to a store are tried, as a job sets it."""

from dataclasses import dataclass
from typing import Final

from tidelog.options.declaration import check_options, option
from tidelog.options.kinds import ABOVE_ZERO, Duration, Integer, Number, Range, Size


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long requests to a store are tried, in seconds; raises ConfigError for values that cannot
    work.

    A transfer of n bytes gets n / `bytes_per_s` on top of timeout, hedge delay and deadline, so a
    large object on a slow line is not taken for a stall; a read of unknown length gets none. The
    pause before retry n is drawn from [1 - jitter, 1] times min(max_backoff, first_backoff * 2**n).
    """

    attempt_timeout: float = option(
        20.0,
        Duration(ABOVE_ZERO),
        "A request without an answer for this long is tried again.",
        when="Raise it for stores that answer slowly; lower it where a second attempt helps.",
    )
    hedge_after: float | None = option(
        2.0,
        Duration(ABOVE_ZERO),
        "A second attempt runs beside the first from then on, and the first answer counts.",
        when="Lower it to a little more than the store's slowest usual answer; off where each "
        "request is dear.",
        none="off",
    )
    first_backoff: float = option(
        0.05,
        Duration(ABOVE_ZERO),
        "Pause before the first retry; it doubles with each further one.",
        when="Raise it for stores that throttle.",
    )
    max_backoff: float = option(
        5.0,
        Duration(ABOVE_ZERO),
        "The longest pause between retries.",
        when="Lower it to be back sooner after an outage.",
    )
    jitter: float = option(
        0.5,
        Number(Range(0, 1)),
        "Share of a pause that is left to chance, so that processes do not retry together.",
        when="Raise it when many processes share a store.",
    )
    attempts: int | None = option(
        None,
        Integer(Range(1)),
        "Attempts of a request in all, unless its deadline comes first.",
        when="Set it where a store is to fail fast.",
        none="unlimited",
    )
    deadline: float = option(
        60.0,
        Duration(ABOVE_ZERO),
        "How long a request is retried before it has failed.",
        when="Raise it to ride out longer outages within a checkpoint; `checkpoint.timeout` and "
        "the failures that are tolerated decide what happens then.",
    )
    bytes_per_s: float = option(
        4 * 2**20,
        Size(per_second=True),
        "The slowest link: a transfer gets its size at this rate on top of all times.",
        when="Lower it on links that are slower.",
    )

    def __post_init__(self) -> None:
        check_options(self, "retry.")

    def backoff_s(self, retry: int, draw: float) -> float:
        """Pause before retry number `retry` (from 0) for a uniform `draw` in [0, 1)."""
        longest = min(self.max_backoff, self.first_backoff * 2.0 ** min(retry, 64))
        return longest * (1 - self.jitter * draw)


LOCAL_POLICY: Final = RetryPolicy(attempt_timeout=300, hedge_after=None, deadline=300)
"""For stores on this machine: a slow disk only gets slower by a second attempt."""
