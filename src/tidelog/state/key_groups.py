"""Key groups: fixed slices of the key space, the unit in which state moves between subtasks.

Invariants: a key's group depends on the key's encoding and the number of groups alone; the
ranges of the subtasks of an operator partition [0, key groups) in order.
"""

from collections.abc import Callable, Hashable, Iterable
from typing import Any

import google_crc32c
import msgspec

from tidelog.ids import KeyGroup

encode_key = msgspec.msgpack.Encoder().encode
"""Keys are stored as msgpack: self-delimiting, so a prefix scan over a key is exact."""

_decode: Callable[[bytes], Any] = msgspec.msgpack.Decoder().decode


def decode_key(data: bytes) -> Hashable:
    """The key as it was encoded; sequences come back as tuples."""
    return _as_tuple(_decode(data))


def decode_keys(encoded: Iterable[bytes]) -> list[Hashable]:
    """As `decode_key`, for many keys."""
    keys = list(map(_decode, encoded))
    return list(map(_as_tuple, keys)) if list in set(map(type, keys)) else keys


def _as_tuple(key: Any) -> Hashable:
    return key if key.__class__ is not list else tuple(map(_as_tuple, key))


def key_group(encoded_key: bytes, key_groups: int) -> KeyGroup:
    """The group of an encoded key."""
    # Once for every record: a call of the NewType would take as long as the checksum.
    group: KeyGroup = google_crc32c.value(encoded_key) % key_groups
    return group


class KeyGroupRange(msgspec.Struct, frozen=True):
    """Key groups first..last, both included."""

    first: KeyGroup
    last: KeyGroup

    def __contains__(self, group: int) -> bool:
        return self.first <= group <= self.last


def subtask_of(group: int, key_groups: int, parallelism: int) -> int:
    """The subtask that owns a key group."""
    return group * parallelism // key_groups


def range_of(subtask: int, key_groups: int, parallelism: int) -> KeyGroupRange:
    """The key groups a subtask owns; the inverse of `subtask_of`."""
    first = -(-subtask * key_groups // parallelism)
    last = -(-(subtask + 1) * key_groups // parallelism) - 1
    return KeyGroupRange(KeyGroup(first), KeyGroup(last))


def successor(subtask: int, parallelism: int) -> int:
    """The new subtask that answers for the sink transactions of an old one."""
    return subtask % parallelism
