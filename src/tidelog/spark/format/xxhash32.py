"""xxHash with 32 bits: the checksum in the LZ4 streams that the JVM writes.

Invariant: pure, and exact for any length. It is here because no dependency has it.
"""

import struct
from typing import Final

_PRIME_1: Final = 0x9E3779B1
_PRIME_2: Final = 0x85EBCA77
_PRIME_3: Final = 0xC2B2AE3D
_PRIME_4: Final = 0x27D4EB2F
_PRIME_5: Final = 0x165667B1
_MASK: Final = 0xFFFFFFFF
_STRIPE: Final = 16
_WORD: Final = 4


def xxhash32(data: bytes, seed: int) -> int:
    """The hash of `data`, unsigned."""
    striped = len(data) // _STRIPE * _STRIPE
    worded = len(data) // _WORD * _WORD
    value = _stripes(data[:striped], seed) if striped else seed + _PRIME_5
    value += len(data)
    for (word,) in struct.iter_unpack("<I", data[striped:worded]):
        value = _rotated(value + word * _PRIME_3, 17) * _PRIME_4
    for byte in data[worded:]:
        value = _rotated(value + byte * _PRIME_5, 11) * _PRIME_1
    value &= _MASK
    value = (value ^ value >> 15) * _PRIME_2 & _MASK
    value = (value ^ value >> 13) * _PRIME_3 & _MASK
    return value ^ value >> 16


def _stripes(data: bytes, seed: int) -> int:
    lanes = [
        _lane(seed + start, words)
        for start, words in zip(
            (_PRIME_1 + _PRIME_2, _PRIME_2, 0, -_PRIME_1),
            zip(*struct.iter_unpack("<4I", data), strict=True),
            strict=True,
        )
    ]
    return sum(_rotated(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True))


def _lane(value: int, words: tuple[int, ...]) -> int:
    # Inlined rotation: this loop is most of the time that decoding takes.
    for word in words:
        value = (value + word * _PRIME_2) & _MASK
        value = (value << 13 | value >> 19) * _PRIME_1 & _MASK
    return value


def _rotated(value: int, bits: int) -> int:
    value &= _MASK
    return (value << bits | value >> (32 - bits)) & _MASK
