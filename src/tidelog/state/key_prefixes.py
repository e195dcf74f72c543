"""Beginnings of keys: where those that begin alike lie in the order in which keys are stored.

Invariant: keys of one type and length that begin alike are neighbours, and shorter ones come first.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from tidelog.errors import ConfigError
from tidelog.state.key_groups import checked_key, decode_key, encode_key, first_value

_FIXED: Final[Mapping[type, int]] = {str: 31, bytes: -1, tuple: 15}
"""How msgpack begins what keys may begin with: with its length, up to these within the first byte,
in front of values of other types; longer ones come after all of those."""

_FILLERS: Final[Mapping[type, Any]] = {str: "x", bytes: b"x", tuple: (None,)}
"""A prefix of each type that is one byte long when it is encoded."""


@dataclass(frozen=True, slots=True)
class KeyPrefix:
    """Keys that begin alike: those of one length are neighbours."""

    kind: type
    length: int
    """The length of the prefix."""
    body: bytes
    """What follows the header of each such key."""

    @classmethod
    def of(cls, prefix: Any) -> "KeyPrefix":
        """Raises ConfigError for what nothing begins with."""
        kind = next(filter(partial(isinstance, prefix), _FIXED), None)
        if kind is None:
            raise ConfigError(
                f"prefix {prefix!r} of a scan",
                expected="a text, bytes or a tuple: the beginning of the keys",
                found=type(prefix).__name__,
                action="leave it out, and take what you want of the scan",
            )
        length = _length(prefix)
        return cls(kind, length, checked_key("prefix", prefix)[len(_header(kind, length)) :])

    def lower(self, length: int) -> bytes:
        """The first key of that length that may begin so."""
        return _header(self.kind, length) + self.body

    def longer(self, length: int) -> bytes:
        """The lower bound of all keys of the type that are longer."""
        return _header(self.kind, length + 1)

    def next_length(self, row_key: bytes | None, length: int) -> int | None:
        """The length to look at next; `row_key` is of the first row that is `longer`."""
        if row_key is None:
            return None
        key = decode_key(first_value(row_key)[0])
        if type(key) is self.kind:
            return _length(key)
        fixed = _FIXED[self.kind]
        return fixed + 1 if length < fixed else None


def _length(key: Any) -> int:
    return len(key.encode() if isinstance(key, str) else key)


def _header(kind: type, length: int) -> bytes:
    """What a key of that length begins with."""
    encoded: bytes = encode_key(_FILLERS[kind] * length)
    return encoded[: len(encoded) - length]
