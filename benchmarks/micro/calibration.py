"""A yardstick: work that has nothing to do with tidelog, timed around every micro-benchmark.

Invariants: its work never changes, or all stored baselines have to be renewed; like the benchmarks
it is timed by the processor time of the calling thread, so waiting for a processor does not count.
"""

import random
import time
import zlib

REPEATS = 9

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
    """Processor seconds of the shortest of a few runs: others only ever make one longer."""
    shortest = float("inf")
    for _ in range(REPEATS):
        start = time.thread_time()
        work()
        shortest = min(shortest, time.thread_time() - start)
    return shortest
