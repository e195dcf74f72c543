"""What the micro-benchmarks work on: row keys, flushes, logs; the same in every process.

Invariant: sizes and contents depend on the arguments alone, so costs of two runs compare.
"""

import random

import google_crc32c
import msgspec

from tidelog.changelog.change import ChangeBatch
from tidelog.ids import SeqNo

KEY_GROUPS = 128
FLUSHED = 16_384
"""Rows of one flush of a busy subtask."""
BUFFER = 2048
"""Records that an operator handles at a time."""

encode = msgspec.msgpack.Encoder().encode


def word(number: int, length: int) -> str:
    """A word of a word count: digits that are never the same."""
    return f"{number:0{length}d}"


def row_key(key: bytes, state: int = 1) -> bytes:
    """Key group, state id, key."""
    group: int = google_crc32c.value(key) % KEY_GROUPS
    return group.to_bytes(2, "big") + state.to_bytes(2, "big") + key


def row_keys(count: int, length: int = 16) -> list[bytes]:
    """The row keys of the first `count` words, sorted."""
    return sorted(row_key(encode(word(number, length))) for number in range(count))


def flush(first: int = 0, count: int = FLUSHED, length: int = 16, seed: int = 1) -> ChangeBatch:
    """Changes of a word count over 3 million words: values of 2 to 9 bytes."""
    rng = random.Random(seed)
    rows: dict[bytes, bytes] = {}
    while len(rows) < count:
        key = encode(word(rng.randrange(3_000_000), length))
        value = encode(rng.choice([rng.randrange(100_000), rng.randrange(2**40)]))
        rows[row_key(key)] = value
    keys = sorted(rows)
    return ChangeBatch(SeqNo(first), keys, [rows[key] for key in keys])
