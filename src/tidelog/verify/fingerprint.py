"""Fingerprints of rows: equal sets of rows have equal fingerprints, in whatever order they come.

Invariants: fingerprints of disjoint sets add up to that of their union, so the parts of a table
can be taken anywhere and summed; of two different sets they differ but for one chance in 2^128.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, Self

_BYTES: Final = 16
_MODULUS: Final = 1 << 8 * _BYTES


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """A set of rows: their number, and the sum of their 128-bit hashes modulo 2^128."""

    rows: int = 0
    total: int = 0

    def __add__(self, other: Self) -> "Fingerprint":
        return Fingerprint(self.rows + other.rows, (self.total + other.total) % _MODULUS)

    def __str__(self) -> str:
        """32 hexadecimal digits."""
        return f"{self.total:032x}"


def row_hash(key: bytes, value: bytes) -> int:
    """128 bits of BLAKE2b over a row; the key's length keeps it apart from the value."""
    row = len(key).to_bytes(4, "little") + key + value
    return int.from_bytes(blake2b(row, digest_size=_BYTES).digest(), "little")


def fingerprint(rows: Iterable[tuple[bytes, bytes]]) -> Fingerprint:
    """The fingerprint of some rows; they are not kept."""
    count = total = 0
    for key, value in rows:
        total += row_hash(key, value)
        count += 1
    return Fingerprint(count, total % _MODULUS)


def combined(parts: Iterable[Fingerprint]) -> Fingerprint:
    """The fingerprint of the union of disjoint sets."""
    return sum(parts, Fingerprint())


def differing(one: Mapping[int, Fingerprint], other: Mapping[int, Fingerprint]) -> list[int]:
    """The key groups, ascending, whose fingerprints differ; one that is not there has no rows."""
    nothing = Fingerprint()
    groups = sorted(one.keys() | other.keys())
    return [g for g in groups if one.get(g, nothing) != other.get(g, nothing)]
