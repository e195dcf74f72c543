"""How a store behaves: its settings.

Invariant: equal manners and an equal order of requests give equal latencies, in every process and
on the Hadoop side too.
"""

from dataclasses import dataclass
from typing import Final

from tidelog.bench.store.latency import Kind, latency_ms
from tidelog.errors import ConfigError

CONNECTION_MB_PER_S: Final = 90.0
"""AWS's guidance is one concurrent request per 85 to 90 MB/s ("Performance design patterns for
Amazon S3"); measured were 86 down, 100 up (napkin-math#39), and 93 down (dvassallo/s3-benchmark).
"""


@dataclass(frozen=True, slots=True)
class Manners:
    """Of a store behind a network; 1 MB is 10^6 bytes. 0 stands for no latency and for no limit."""

    latency_ms: float = 30.0
    """Median of PUT; the other kinds follow."""
    mb_per_s: float = 50.0
    """All transfers together, up and down."""
    seed: int = 1
    connection_mb_per_s: float = CONNECTION_MB_PER_S
    """One transfer alone."""

    def __post_init__(self) -> None:
        for name in ("latency_ms", "mb_per_s", "connection_mb_per_s"):
            value = getattr(self, name)
            if not 0 <= value < float("inf"):
                raise ConfigError(
                    f"{name} of the modelled store",
                    expected="a finite number of at least 0; 0 for none",
                    found=str(value),
                    action="correct the value",
                )

    def latency_s(self, kind: Kind, number: int) -> float:
        """Seconds that request `number` (from 0) of a kind takes before its bytes."""
        if self.latency_ms == 0:
            return 0.0
        return latency_ms(self.latency_ms, self.seed, kind, number) / 1e3


NONE: Final = Manners(latency_ms=0, mb_per_s=0, connection_mb_per_s=0)
"""A store that answers as fast as the one below it."""
