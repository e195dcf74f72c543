"""Where a msgpack value ends, for row keys that join several of them.

Invariant: nothing is decoded, only lengths are read; a value cut short raises ValueError.
"""

from typing import Final

_COUNTED: Final = {
    **{0xC4: (1, 0, 0), 0xC5: (2, 0, 0), 0xC6: (4, 0, 0)},  # binary
    **{0xC7: (1, 1, 0), 0xC8: (2, 1, 0), 0xC9: (4, 1, 0)},  # extensions, behind their type
    **{0xD9: (1, 0, 0), 0xDA: (2, 0, 0), 0xDB: (4, 0, 0)},  # text
    **{0xDC: (2, 0, 1), 0xDD: (4, 0, 1)},  # arrays
    **{0xDE: (2, 0, 2), 0xDF: (4, 0, 2)},  # maps
}
"""Type bytes with a number behind them: its width, bytes besides, and the values each counts;
where that is none, the number counts bytes."""

_FIXED: Final = {
    **dict.fromkeys((0xC0, 0xC2, 0xC3), 0),
    **{0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8},
    **{0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8},
    **{0xD4: 2, 0xD5: 3, 0xD6: 5, 0xD7: 9, 0xD8: 17},
}
"""Type bytes with so many bytes behind them."""


def first_value(data: bytes) -> tuple[bytes, bytes]:
    """Split `data` behind its first msgpack value; raises ValueError when it holds none."""
    at, values = 0, 1
    while values:
        if at >= len(data):
            raise ValueError("a msgpack value is cut short")
        size, nested = _extent(data, at)
        at += size
        values += nested - 1
    if at > len(data):
        raise ValueError("a msgpack value is cut short")
    return data[:at], data[at:]


def _extent(data: bytes, at: int) -> tuple[int, int]:
    """Bytes of the value at `at` without the values nested in it, and how many those are."""
    kind = data[at]
    if kind <= 0x7F or kind >= 0xE0:
        return 1, 0
    if kind <= 0x8F:
        return 1, 2 * (kind & 0x0F)
    if kind <= 0x9F:
        return 1, kind & 0x0F
    if kind <= 0xBF:
        return 1 + (kind & 0x1F), 0
    if kind in _FIXED:
        return 1 + _FIXED[kind], 0
    if kind in _COUNTED:
        width, extra, values_each = _COUNTED[kind]
        count = int.from_bytes(data[at + 1 : at + 1 + width], "big")
        head = 1 + width + extra
        return (head, values_each * count) if values_each else (head + count, 0)
    raise ValueError(f"{kind:#x} starts no msgpack value")
