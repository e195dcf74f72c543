"""Keys: their types, the form that equal keys are stored in, and the groups that they belong to.

Invariants: keys that encode alike are equal, and equal keys of one type encode alike. A key of a
subclass, such as an enum of strings or a named tuple, is the same key as its value, and is given
back as that. A key's group, the unit in which state moves between subtasks, depends on the key's
encoding and the number of groups alone; the ranges of the subtasks of an operator partition
[0, key groups) in order.
"""

import math
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, Final

import google_crc32c
import msgspec

from tidelog.credentials import value_text
from tidelog.errors import StateSchemaError
from tidelog.ids import KeyGroup

KEY_TYPES: Final = "a str, int (64 bits), bool, bytes, float, None or a tuple of these"

CANONICAL_TYPES: Final = frozenset({str, int, bool, bytes, type(None)})
"""Types of keys that are in their stored form already."""

encode_key = msgspec.msgpack.Encoder().encode
"""Keys are stored as msgpack: self-delimiting, so a prefix scan over a key is exact."""

_decode: Callable[[bytes], Any] = msgspec.msgpack.Decoder().decode


class NoKeyError(Exception):
    """What was found instead of a key."""


def _canonical_float(key: float) -> float:
    """One zero and one NaN, as in Spark."""
    return math.nan if math.isnan(key) else float.__add__(key, 0.0)


_VALUE_OF: Final[dict[type, Callable[[Any], Any]]] = {
    float: _canonical_float,
    str: str.__str__,
    int: int.__int__,
    bytes: bytes.__bytes__,
}


def canonical_key(key: Any) -> Any:
    """The one form of all keys equal to this one; raises NoKeyError for a type without."""
    if type(key) in CANONICAL_TYPES:
        return key
    if isinstance(key, tuple):
        return tuple(map(canonical_key, key))
    for basic, value_of in _VALUE_OF.items():
        if isinstance(key, basic):
            return value_of(key)
    raise NoKeyError(f"a key of type {type(key).__qualname__}")


def encode_canonical(key: Any) -> bytes:
    """The bytes of a key in its stored form; raises NoKeyError."""
    try:
        return encode_key(key)
    except OverflowError as error:
        raise NoKeyError("an int beyond 64 bits") from error
    except UnicodeEncodeError as error:
        raise NoKeyError(f"text that is no Unicode ({error.reason})") from error


def checked_key(what: str, key: Hashable) -> bytes:
    """The bytes of a key that a program passes as `what`; raises StateSchemaError for none."""
    try:
        return encode_canonical(key if type(key) in CANONICAL_TYPES else canonical_key(key))
    except NoKeyError as error:
        raise StateSchemaError(
            f"{what} {value_text(key)}",
            expected=KEY_TYPES,
            found=str(error),
            action="pass one, for example a tuple of the fields that matter, or the text of a date",
        ) from error
    except RecursionError as error:
        raise StateSchemaError(
            f"{what}, a {type(key).__name__}",
            expected=KEY_TYPES,
            found="tuples within tuples, nested too deep",
            action="pass a flat tuple, or a text that stands for it",
        ) from error


def decode_key(data: bytes) -> Hashable:
    """The key as it was encoded; sequences come back as tuples."""
    return as_tuple(_decode(data))


def decode_keys(encoded: Iterable[bytes]) -> list[Hashable]:
    keys = list(map(_decode, encoded))
    return list(map(as_tuple, keys)) if list in set(map(type, keys)) else keys


def as_tuple(key: Any) -> Hashable:
    return key if key.__class__ is not list else tuple(map(as_tuple, key))


checksum: Callable[[bytes], Any] = google_crc32c.value
"""CRC32C of an encoded key; a key's group is this modulo the number of key groups."""


def key_group(encoded_key: bytes, key_groups: int) -> KeyGroup:
    # Once for every record: a call of the NewType would take as long as the checksum.
    group: KeyGroup = checksum(encoded_key) % key_groups
    return group


class KeyGroupRange(msgspec.Struct, frozen=True):
    """Key groups first..last, both included."""

    first: KeyGroup
    last: KeyGroup

    def __contains__(self, group: int) -> bool:
        return self.first <= group <= self.last

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.first, self.last + 1))

    def encoded(self) -> list[bytes]:
        """The groups as row keys have them."""
        return [group.to_bytes(2, "big") for group in self]


def subtask_of(group: int, key_groups: int, parallelism: int) -> int:
    return group * parallelism // key_groups


def range_of(subtask: int, key_groups: int, parallelism: int) -> KeyGroupRange:
    """The key groups a subtask owns; the inverse of `subtask_of`."""
    first = -(-subtask * key_groups // parallelism)
    last = -(-(subtask + 1) * key_groups // parallelism) - 1
    return KeyGroupRange(KeyGroup(first), KeyGroup(last))


def successor(subtask: int, parallelism: int) -> int:
    """The new subtask that answers for the sink transactions of an old one."""
    return subtask % parallelism


_COUNTED: Final = {
    **{0xC4: (1, 0, 0), 0xC5: (2, 0, 0), 0xC6: (4, 0, 0)},  # binary
    **{0xC7: (1, 1, 0), 0xC8: (2, 1, 0), 0xC9: (4, 1, 0)},  # extensions, after their type
    **{0xD9: (1, 0, 0), 0xDA: (2, 0, 0), 0xDB: (4, 0, 0)},  # text
    **{0xDC: (2, 0, 1), 0xDD: (4, 0, 1)},  # arrays
    **{0xDE: (2, 0, 2), 0xDF: (4, 0, 2)},  # maps
}
"""Type bytes with a number after them: its width, bytes besides, and the values each counts;
where that is none, the number counts bytes."""

_FIXED: Final = {
    **dict.fromkeys((0xC0, 0xC2, 0xC3), 0),
    **{0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8},
    **{0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8},
    **{0xD4: 2, 0xD5: 3, 0xD6: 5, 0xD7: 9, 0xD8: 17},
}
"""Type bytes of values of a fixed size, and that size in bytes."""


def first_value(data: bytes) -> tuple[bytes, bytes]:
    """Split `data`, such as a row's key with more after it, after its first msgpack value.

    Nothing is decoded, only lengths are read; raises ValueError for a value that is cut short.
    """
    end, values = 0, 1
    while values:
        if end >= len(data):
            raise ValueError("a msgpack value is cut short")
        size, nested = _extent(data, end)
        end += size
        values += nested - 1
    if end > len(data):
        raise ValueError("a msgpack value is cut short")
    return data[:end], data[end:]


def _extent(data: bytes, start: int) -> tuple[int, int]:
    """Bytes of the value at `start` without those nested in it, and how many those are."""
    kind = data[start]
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
        count = int.from_bytes(data[start + 1 : start + 1 + width], "big")
        head = 1 + width + extra
        return (head, values_each * count) if values_each else (head + count, 0)
    raise ValueError(f"{kind:#x} starts no msgpack value")
