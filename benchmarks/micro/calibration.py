"""A yardstick: work that has nothing to do with tidelog, timed around every micro-benchmark.

Invariant: its work never changes, or all stored baselines have to be renewed.
"""

import random
import time
import zlib

REPEATS = 5

_RNG = random.Random(1)
_KEYS = [_RNG.randbytes(20) for _ in range(2_000)]


def work() -> int:
    """What tidelog's calls are made of: dicts, sorting, small byte strings, loops, compression."""
    rows: dict[bytes, int] = {}
    for at, key in enumerate(_KEYS):
        rows[key] = rows.get(key, 0) + at
    ordered = sorted(rows)
    columns = b"".join(ordered), bytes(rows[key] & 0xFF for key in ordered)
    return len(zlib.compress(b"".join(columns), 1))


def seconds() -> float:
    """The shortest of a few runs: what others do to the machine only makes runs longer."""
    shortest = float("inf")
    for _ in range(REPEATS):
        start = time.perf_counter()
        work()
        shortest = min(shortest, time.perf_counter() - start)
    return shortest
