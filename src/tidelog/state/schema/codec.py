"""How a state's objects are held in memory and stored.

Invariants: an object shared between buffer and user function cannot be changed in place: tuples
of scalars are shared, anything else is held encoded and decoded on every read. With a TTL every
stored value starts with its expiry time (u64, milliseconds).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from tidelog.state.schema.schema import TupleCodec

EXPIRY_BYTES = 8


@dataclass(frozen=True, slots=True)
class ValueCodec:
    """One value of a state: `hold` and `read` face the user, `encode` and `decode` the table."""

    hold: Callable[[Any], Any]
    """Checks a tuple and returns the object that the buffer keeps."""
    read: Callable[[Any], tuple[Any, ...] | None]
    """Returns the tuple of an object that the buffer keeps; None when it has expired."""
    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]


def value_codec(values: TupleCodec, ttl_ms: int | None, now_ms: Callable[[], int]) -> ValueCodec:
    """The codec for values of a schema, with or without TTL."""
    if values.immutable:
        inner = ValueCodec(values.check, _unchanged, values.encode, values.decode)
    else:
        inner = ValueCodec(values.store, values.decode, bytes, bytes)
    return inner if ttl_ms is None else _with_ttl(inner, ttl_ms, now_ms)


def _unchanged(held: Any) -> Any:
    return held


def _with_ttl(inner: ValueCodec, ttl_ms: int, now_ms: Callable[[], int]) -> ValueCodec:
    return ValueCodec(
        hold=lambda value: (now_ms() + ttl_ms, inner.hold(value)),
        read=lambda held: inner.read(held[1]) if held[0] > now_ms() else None,
        encode=lambda held: held[0].to_bytes(EXPIRY_BYTES, "big") + inner.encode(held[1]),
        decode=lambda data: (expiry_of(data), inner.decode(data[EXPIRY_BYTES:])),
    )


def expiry_of(stored: bytes) -> int:
    """Expiry time of a stored value of a state with TTL, in milliseconds."""
    return int.from_bytes(stored[:EXPIRY_BYTES], "big")


def list_codec(
    values: TupleCodec, ttl_ms: int | None, now_ms: Callable[[], int]
) -> tuple[ValueCodec, ValueCodec]:
    """Codecs of a list's elements and of its rows; a row holds a list of elements."""
    element = value_codec(values, ttl_ms, now_ms)
    split = msgspec.msgpack.Decoder(list[bytes]).decode
    rows = ValueCodec(
        hold=_unchanged,
        read=_unchanged,
        encode=lambda held: msgspec.msgpack.encode(list(map(element.encode, held))),
        decode=lambda data: list(map(element.decode, split(data))),
    )
    return element, rows
