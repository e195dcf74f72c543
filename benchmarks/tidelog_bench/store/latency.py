"""How long the n-th request of a kind takes: the shape of S3's latencies, and the draw from it.

Invariant: a draw is a pure function of seed, kind and number, equal bit for bit to the one in
`native/spark-benchmark`; `tests/golden/store_latency_v1.txt` holds both to it.

Figures are milliseconds of requests for small objects within us-east-1, connection open, as
measured in https://github.com/sirupsen/napkin-math/pull/39 (2026): p50, p90 and p99 of PUT and GET
of 128 KiB, of LIST, and of a GET answered with 304, which stands for HEAD. They fit other public
measurements: GET 27/47/113 and PUT 70 (p99 137) for 500 KiB, collected in
https://github.com/cdouglas/endive (analysis/dr_put_get.md). The rest is an assumption: the least is
half the median; p99.9 of PUT is the 200 ms that longer runs there gave and that napkin-math lists,
which is 2.27 times p99, and the others have that factor; the maximum is five times p99.9. DELETE,
for which nothing was found, is taken as PUT.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

_MASK: Final = (1 << 64) - 1
SHARES: Final = (0.0, 0.5, 0.9, 0.99, 0.999, 1.0)
"""Shares of the requests of a kind that take less than the columns of `TABLE` say."""
_PUT: Final = (15.0, 30.0, 54.0, 88.0, 200.0, 1000.0)
_SOURCE_MEDIAN: Final = 30.0
"""The median of PUT in the table: figures are scaled by it."""


class Kind(StrEnum):
    """The kind of a request; a conditional write is a PUT."""

    PUT = "put"
    GET = "get"
    LIST = "list"
    HEAD = "head"
    DELETE = "delete"


TABLE: Final = {
    Kind.PUT: _PUT,
    Kind.GET: (13.0, 26.0, 40.0, 73.0, 166.0, 830.0),
    Kind.LIST: (12.0, 24.0, 29.0, 46.0, 105.0, 525.0),
    Kind.HEAD: (5.0, 10.0, 13.0, 28.0, 64.0, 320.0),
    Kind.DELETE: _PUT,
}
_CODE: Final = {kind: code for code, kind in enumerate(Kind, 1)}


def latency_ms(median_ms: float, seed: int, kind: Kind, number: int) -> float:
    """Milliseconds of request `number` (from 0) of a kind where PUT's median is `median_ms`."""
    return median_ms * (_quantile(TABLE[kind], _uniform(seed, kind, number)) / _SOURCE_MEDIAN)


def _quantile(table: tuple[float, ...], share: float) -> float:
    upper = next(i for i in range(1, len(SHARES)) if share < SHARES[i])
    low, high = table[upper - 1], table[upper]
    start, end = SHARES[upper - 1], SHARES[upper]
    return low + (high - low) * ((share - start) / (end - start))


def _uniform(seed: int, kind: Kind, number: int) -> float:
    """In [0, 1), from the upper 53 bits of a hash."""
    mixed = _splitmix64(_splitmix64(_splitmix64(seed & _MASK) ^ _CODE[kind]) ^ number)
    return (mixed >> 11) * 2.0**-53


def _splitmix64(value: int) -> int:
    """One step of https://prng.di.unimi.it/splitmix64.c from a state."""
    z = (value + 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


CONNECTION_MB_PER_S: Final = 90.0
"""AWS's guidance is one concurrent request per 85 to 90 MB/s ("Performance design patterns for
Amazon S3"); measured were 86 down, 100 up (napkin-math#39), and 93 down (dvassallo/s3-benchmark).
"""


@dataclass(frozen=True, slots=True)
class LatencyProfile:
    """How a store over a network behaves: equal profiles and an equal order of requests give
    equal latencies, in every process and on the Hadoop side too.

     1 MB is 10^6 bytes. 0 stands for no latency and for no limit."""

    latency_ms: float = 30.0
    """Median of PUT; the other kinds follow."""
    mb_per_s: float = 50.0
    """All transfers together, up and down."""
    seed: int = 1
    connection_mb_per_s: float = CONNECTION_MB_PER_S
    """One transfer alone."""

    def latency_s(self, kind: Kind, number: int) -> float:
        """Seconds that request `number` (from 0) of a kind takes before its bytes."""
        if self.latency_ms == 0:
            return 0.0
        return latency_ms(self.latency_ms, self.seed, kind, number) / 1e3


NONE: Final = LatencyProfile(latency_ms=0, mb_per_s=0, connection_mb_per_s=0)
"""A store that answers as fast as the one below it."""
