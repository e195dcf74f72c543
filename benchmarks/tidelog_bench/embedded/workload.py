"""Workloads: words and the order in which they arrive, all drawn before anything is measured.

Invariant: the same workload and seed give the same words in the same order in every process.
"""

import base64
import collections
import itertools
import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Workload:
    """`keys` distinct words of `key_bytes` each, drawn uniformly or Zipf-skewed (exponent 1)."""

    keys: int
    key_bytes: int = 16
    skewed: bool = False
    draws: int = 8_000_000
    """Length of the pre-drawn stream; a run that needs more goes round."""


@dataclass(frozen=True)
class Words:
    """`fill` has every word once, in random order; `stream` is what is measured."""

    fill: list[str]
    stream: list[str]


def draw(workload: Workload, seed: int) -> Words:
    """Draw the words of a workload."""
    rng = random.Random(seed)
    # Base64 of random bytes: LZ4 gains nothing on it, so sizes on disk are what they say.
    raw_bytes = workload.key_bytes * 3 // 4 + 1
    words = [
        base64.b64encode(rng.randbytes(raw_bytes))[: workload.key_bytes].decode()
        for _ in range(workload.keys)
    ]
    if workload.skewed:
        weights = itertools.accumulate(1 / rank for rank in range(1, workload.keys + 1))
        stream = rng.choices(words, cum_weights=list(weights), k=workload.draws)
    else:
        stream = rng.choices(words, k=workload.draws)
    return Words(words, stream)


def counted(words: list[str]) -> list[tuple[str, int]]:
    """The words of one buffer with how often each occurs."""
    return list(collections.Counter(words).items())
