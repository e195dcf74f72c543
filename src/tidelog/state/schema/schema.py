"""Schemas of state values: Spark's DDL strings, checked and encoded.

Invariants: a value is a tuple with one entry per field, each entry None or of the field's type;
it is checked when it is written, so what was stored can always be read, and is what was checked;
the stored bytes are a msgpack array in field order, shorter when it is from before the last fields
were added; with a TTL they come after the expiry time (u64, milliseconds). An object shared between
buffer and user function cannot be changed in place: tuples of scalars are shared, anything else is
held encoded and decoded on every read. Nothing here imports pyspark: its `StructType` is taken by
its `simpleString`.
"""

import datetime
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol, runtime_checkable

import msgspec

from tidelog.credentials import shows_records, value_text
from tidelog.errors import StateSchemaError
from tidelog.state.schema.ddl import (
    INTEGER_BITS,
    Field,
    all_scalar,
    bad_schema,
    canonical_text,
    parse_fields,
    tuple_of,
)

_EXACT: Final = {
    **dict.fromkeys(INTEGER_BITS, int),
    "boolean": bool,
    "float": float,
    "double": float,
    "string": str,
    "binary": bytes,
}
"""Types whose values are stored as they are; others go through a conversion."""
_NOT_OF_TEXT: Final = {"binary": bytes, "date": datetime.date, "timestamp": datetime.datetime}
"""Types that msgspec would make of texts, bytes of any that happens to be base64."""


@runtime_checkable
class _SparkType(Protocol):
    def simpleString(self) -> str: ...


EXPIRY_BYTES: Final = 8
_raw: Final = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode

Schema = str | _SparkType
"""A DDL string such as `"count long, last timestamp"`, or a pyspark `StructType`."""


@dataclass(frozen=True, slots=True)
class TupleCodec:
    """Checks, encodes and decodes the tuples of one schema."""

    schema: str
    """Canonical text; two schemas are the same when these are equal."""
    fields: tuple[Field, ...]
    immutable: bool
    """All fields are scalars, so a tuple can be shared instead of copied."""
    check: Callable[[Any], tuple[Any, ...]]
    """The tuple as it will be read; raises StateSchemaError."""
    store: Callable[[Any], bytes]
    """Checks a tuple and encodes it."""
    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], tuple[Any, ...]]


def parse_schema(schema: Schema, state: str | None = None) -> TupleCodec:
    """Compile a schema, of a state of that name; raises StateSchemaError for what is none."""
    text = schema.simpleString() if isinstance(schema, _SparkType) else schema
    if not isinstance(text, str):
        raise bad_schema(str(schema), "a DDL string or a StructType")
    fields = parse_fields(text)
    python = tuple_of(fields)
    canonical = canonical_text(fields)

    what = f"a value for the schema '{canonical}'" + (f" of state {state!r}" if state else "")
    immutable = all_scalar(fields)
    decode = _decoder(fields, python)
    check = _checker(fields, python, what, decode if immutable else None)
    encode = msgspec.msgpack.encode

    def store(value: Any) -> bytes:
        try:
            return encode(check(value))
        except (TypeError, OverflowError, UnicodeEncodeError) as cause:
            raise _refusal(what, value, cause) from cause

    return TupleCodec(canonical, fields, immutable, check, store, encode, decode)


def _decoder(fields: tuple[Field, ...], python: Any) -> Callable[[bytes], tuple[Any, ...]]:
    """Reads values of the schema, and those from before its last fields were added."""
    decode_all: Callable[[bytes], tuple[Any, ...]] = msgspec.msgpack.Decoder(python).decode
    shorter: dict[int, Callable[[bytes], tuple[Any, ...]]] = {}

    def decode(data: bytes) -> tuple[Any, ...]:
        try:
            return decode_all(data)
        except msgspec.ValidationError:
            count = len(_raw(data))
            if not 0 < count < len(fields):
                raise
        if count not in shorter:
            shorter[count] = msgspec.msgpack.Decoder(tuple_of(fields[:count])).decode
        return shorter[count](data) + (None,) * (len(fields) - count)

    return decode


def _refusal(what: str, value: Any, cause: Exception) -> StateSchemaError:
    why = str(cause)
    if isinstance(cause, UnicodeEncodeError):
        why = f"text that is no Unicode: {cause.reason}"
    return StateSchemaError(
        what,
        expected="a value of its type for each field",
        found=f"{value_text(value)} ({why})" if shows_records() else value_text(value),
        action="pass such values, in a tuple where the state has tuples",
    )


def _checker(
    fields: tuple[Field, ...],
    python: Any,
    what: str,
    decode: Callable[[bytes], tuple[Any, ...]] | None,
) -> Callable[[Any], tuple[Any, ...]]:
    """A function that returns its argument as a tuple of the schema, or raises.

    With `decode` the tuples are scalars, and what is returned is what will be read.
    """
    exact = tuple(_EXACT.get(field.type_name) for field in fields)
    bounds = [
        (index, -(1 << bits - 1), (1 << bits - 1) - 1)
        for index, field in enumerate(fields)
        if (bits := INTEGER_BITS.get(field.type_name))
    ]
    texts = [index for index, kind in enumerate(exact) if kind is str]
    types = " ".join(field.type_name for field in fields)
    not_of_text = [kind for name, kind in _NOT_OF_TEXT.items() if name in types] or None

    def check(value: Any) -> tuple[Any, ...]:
        # The usual value, a tuple of exactly these scalars, needs no conversion.
        if value.__class__ is tuple and tuple(map(type, value)) == exact:
            for index, low, high in bounds:
                if not low <= value[index] <= high:
                    return convert(value)
            for index in texts:
                if not value[index].isascii():
                    try:
                        value[index].encode()
                    except UnicodeEncodeError as cause:
                        raise _refusal(what, value, cause) from cause
            checked: tuple[Any, ...] = value
            return checked
        return convert(value)

    def convert(value: Any) -> tuple[Any, ...]:
        try:
            # Also a text has parts, and a dict has keys.
            if value.__class__ is not tuple and not isinstance(value, tuple | list):
                raise TypeError(f"{type(value).__name__} where a tuple is expected")
            converted: tuple[Any, ...] = msgspec.convert(
                tuple(value), python, builtin_types=not_of_text
            )
            # A time zone becomes UTC, a member of an enum its value: now, not after a restart.
            return converted if decode is None else decode(msgspec.msgpack.encode(converted))
        except (AttributeError, TypeError, OverflowError, ValueError) as cause:
            # msgspec takes whatever has `[...]`, such as a number of numpy, for a mapping.
            raise _refusal(what, value, cause) from cause

    if len(exact) > 1 or exact[0] is None:
        return check
    # One scalar is what most states hold: half the time of an update is its check.
    only = exact[0]
    _, low, high = bounds[0] if bounds else (0, 0, 0)

    def check_one(value: Any) -> tuple[Any, ...]:
        if value.__class__ is tuple and len(value) == 1:
            kind = value[0].__class__
            if kind is only and (not bounds or low <= value[0] <= high):
                checked: tuple[Any, ...] = value
                return checked
        return convert(value)

    return check if texts else check_one


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


def _unchanged(value: Any) -> Any:
    return value


def _with_ttl(inner: ValueCodec, ttl_ms: int, now_ms: Callable[[], int]) -> ValueCodec:
    return ValueCodec(
        hold=lambda value: (now_ms() + ttl_ms, inner.hold(value)),
        read=lambda item: inner.read(item[1]) if item[0] > now_ms() else None,
        encode=lambda item: item[0].to_bytes(EXPIRY_BYTES, "big") + inner.encode(item[1]),
        decode=lambda data: (expiry_of(data), inner.decode(data[EXPIRY_BYTES:])),
    )


def expiry_of(data: bytes) -> int:
    """Expiry time of a stored value of a state with TTL, in milliseconds."""
    return int.from_bytes(data[:EXPIRY_BYTES], "big")


def list_codec(
    values: TupleCodec, ttl_ms: int | None, now_ms: Callable[[], int]
) -> tuple[ValueCodec, ValueCodec]:
    """Codecs of a list's elements and of its rows; a row holds a list of elements."""
    element = value_codec(values, ttl_ms, now_ms)
    split = msgspec.msgpack.Decoder(list[bytes]).decode
    rows = ValueCodec(
        hold=_unchanged,
        read=_unchanged,
        encode=lambda elements: msgspec.msgpack.encode(list(map(element.encode, elements))),
        decode=lambda data: list(map(element.decode, split(data))),
    )
    return element, rows
