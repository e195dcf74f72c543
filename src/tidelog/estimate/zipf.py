"""How many different keys a number of draws hits, for uniform and for Zipf-distributed keys.

Invariants: rank i of `keys` is drawn with a probability proportional to i to the power of -`skew`;
results never exceed the number of draws or of keys, and grow with the draws.
"""

from collections.abc import Callable
from functools import lru_cache
from math import exp, expm1, log, log1p
from typing import Final

_HEAD: Final = 256
"""Ranks that are added one by one; of those behind, the sum is an integral (midpoint rule)."""
_PANELS: Final = 128
"""Panels of Simpson's rule for it, evenly spaced in the logarithm of the rank."""


@lru_cache(maxsize=65_536)
def expected_distinct(keys: int, skew: float, draws: float) -> float:
    """Expected number of different keys among `draws` independent draws.

    The closed form is the sum over all ranks of 1 - (1 - p) ** draws. Fewer than one draw counts
    as that share of a draw.
    """
    if draws <= 1 or keys == 1:
        return min(max(draws, 0.0), 1.0)
    if skew == 0:
        return -keys * expm1(draws * log1p(-1 / keys))
    scale = _power_sum(keys, skew)
    # Not below 0: the log of a key that is drawn nearly always would be minus infinity.
    missed: float = (1 - 1 / scale) ** draws
    return (
        1
        - missed
        + _sum_from_second(keys, lambda rank: -expm1(draws * log1p(-(rank**-skew) / scale)))
    )


@lru_cache(maxsize=1_024)
def _power_sum(keys: int, skew: float) -> float:
    """Sum of rank ** -skew over all ranks: what makes the probabilities add up to one."""
    return 1 + _sum_from_second(keys, lambda rank: rank**-skew)


def _sum_from_second(keys: int, term: Callable[[float], float]) -> float:
    """Sum of a smooth, falling function over the ranks 2 to `keys`."""
    total = sum(map(term, range(2, min(keys, _HEAD) + 1)))
    if keys <= _HEAD:
        return total
    low, high = log(_HEAD + 0.5), log(keys + 0.5)
    width = (high - low) / (2 * _PANELS)
    points = [exp(low + at * width) for at in range(2 * _PANELS + 1)]
    values = [term(rank) * rank for rank in points]
    inner = 4 * sum(values[1:-1:2]) + 2 * sum(values[2:-1:2])
    return total + width / 3 * (values[0] + inner + values[-1])
