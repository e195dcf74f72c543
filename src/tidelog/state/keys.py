"""Keys: which types they may have, and the one form that all equal keys of a type are stored in.

Invariants: keys that encode alike are equal, and equal keys of one type encode alike. A key of a
subclass, such as an enum of strings or a named tuple, is the same key as its value, and is given
back as that.
"""

import math
from collections.abc import Callable, Hashable
from typing import Any, Final

from tidelog.errors import StateSchemaError
from tidelog.state.key_groups import encode_key

KEY_TYPES: Final = "a str, int (64 bits), bool, bytes, float, None or a tuple of these"

AS_THEY_ARE: Final = frozenset({str, int, bool, bytes, type(None)})
"""Types of keys that are in their stored form already."""


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
    if type(key) in AS_THEY_ARE:
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
        return encode_canonical(key if type(key) in AS_THEY_ARE else canonical_key(key))
    except NoKeyError as error:
        raise StateSchemaError(
            f"{what} {key!r}",
            expected=KEY_TYPES,
            found=str(error),
            action="pass one, for example a tuple of the fields that matter, or the text of a date",
        ) from error
