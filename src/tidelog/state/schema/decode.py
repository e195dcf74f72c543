"""Rows for people: what a stored row means, by the kind of its state.

Invariants: decoding never fails; a row whose state is not known, or whose bytes do not fit the
state's schema, keeps its bytes as base64. What comes out is made of JSON's types alone: an instance
of a class, which need not be there, is a dict of its fields, a member of an enum its name.
"""

import base64
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, Final, Literal

import msgspec

from tidelog.changelog.change import ROW_PREFIX_BYTES
from tidelog.checkpoint.manifest import StateInfo
from tidelog.errors import RestoreError, StateSchemaError
from tidelog.ids import KeyGroup
from tidelog.state.key_groups import first_value
from tidelog.state.objects.classes import Builder
from tidelog.state.objects.encoding import Shape, decode_records
from tidelog.state.objects.values import object_parts
from tidelog.state.registry import POSITIONS
from tidelog.state.schema.ddl import UNTYPED
from tidelog.state.schema.schema import EXPIRY_BYTES, TupleCodec, expiry_of, parse_schema

_NUMBER_BYTES: Final = 8
_POSITION_BYTES: Final = 12
"""The number of a record of a join."""
_TIME_BIAS: Final = 1 << 63
_UNDECODED: Final = (
    *(msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError),
    RestoreError,  # of a time zone that this machine does not know
)
"""What a row that cannot be decoded raises."""


@dataclass(frozen=True, slots=True)
class DecodedRow:
    """A row; `value` is None for a delete, and for a timer, which has none."""

    key_group: KeyGroup
    state: str | None
    """The state's name; None when the manifest does not know the state's id."""
    kind: str | None
    key: Any
    """None for a row with records of several keys, which its value has then."""
    entry: Any = None
    """What the row is of its key: a map's key, a list row's position, a timer's time (ms), a
    window's slice's start (ms) and, where it keeps records, the row's position."""
    value: Any = None
    expires_ms: int | list[int] | None = None
    """With a TTL: the expiry time of the value, of each element of a list row."""
    encoding: Literal["decoded", "base64"] = "decoded"


class _Fields(dict[str, Any]):
    """The fields of an object, which may be an element of a set."""

    __hash__ = object.__hash__  # type: ignore[assignment]


class _NoClasses:
    """Instead of the classes of a program."""

    def builder_of(self, shape: Shape, _: Any) -> Builder:
        if shape.kind == "enum":
            return "|".join
        if shape.kind == "class":
            raise ValueError(f"an instance of {shape.name} is known by its class alone")
        if not shape.fields:  # a row without names
            return list

        def fields(values: Sequence[Any]) -> _Fields:
            return _Fields(zip(shape.fields, values, strict=True))

        return fields


def _shown(code: int, data: memoryview) -> Any:
    shapes, records = object_parts(code, data)
    (value,) = decode_records(shapes, records, _NoClasses())
    with suppress(TypeError):  # of dicts with keys that are no text
        # Text with lone surrogates is none for people: this raises UnicodeEncodeError.
        msgspec.json.encode(value, enc_hook=repr)
    return value


_unpack: Final = msgspec.msgpack.Decoder(ext_hook=_shown).decode
_unpack_elements: Final = msgspec.msgpack.Decoder(list[bytes]).decode


@dataclass(frozen=True, slots=True)
class _Kind:
    """How one state's rows are read: state key to (key, entry), bytes to (value, expiry)."""

    split: Callable[[bytes], tuple[Any, Any]]
    value: Callable[[bytes], tuple[Any, int | list[int] | None]]


class RowDecoder:
    """Decodes the rows of one operator, whose states are `states`."""

    def __init__(self, states: Iterable[StateInfo]) -> None:
        self._states = {info.id: (info, _reader(info)) for info in states}

    def decode(self, row_key: bytes, value: bytes | None) -> DecodedRow:
        """Decode one row; a `value` of None is a delete."""
        group = KeyGroup(int.from_bytes(row_key[:2], "big"))
        state = int.from_bytes(row_key[2:ROW_PREFIX_BYTES], "big")
        state_key = row_key[ROW_PREFIX_BYTES:]
        info, reader = self._states.get(state, (None, None))
        raw = DecodedRow(
            key_group=group,
            state=info.name if info else None,
            kind=info.kind if info else None,
            key=_base64(state_key),
            value=None if value is None else _base64(value),
            encoding="base64",
        )
        if reader is None:
            return raw
        try:
            key, entry = reader.split(state_key)
            read, expires = (None, None) if value is None else reader.value(value)
        except _UNDECODED:
            return raw
        return replace(
            raw, key=key, entry=entry, value=read, expires_ms=expires, encoding="decoded"
        )


def _reader(info: StateInfo) -> _Kind | None:
    """How to read the rows of a state; None for a kind or schema this release does not know."""
    if info.kind in _WINDOWS:
        # Their schema is the windows' span: values are any msgpack.
        return _Kind(_WINDOWS[info.kind], lambda data: (_plain(_unpack(data)), None))
    if info.kind == "timed-batches":
        return _Kind(lambda _: (None, None), lambda data: (_batch(data), None))
    if info.kind == "timed-marks":
        return _Kind(_timed_key, lambda _: (None, None))
    try:
        schemas = [parse_schema(text) for text in info.schema if text != UNTYPED]
    except StateSchemaError:
        return None
    reader = None
    match info.kind, schemas:
        case "aggregate", []:
            reader = _Kind(_whole_key, lambda data: (_plain(_unpack(data)), None))
        case "splits", []:
            reader = _Kind(_whole_key, _split_position)
        case "timers", [_]:
            by_time = info.name.endswith("-by-time")
            reader = _Kind(_timer_by_time if by_time else _timer_by_key, lambda _: (None, None))
        case "value", [values]:
            reader = _Kind(_whole_key, _typed(values, info.ttl_ms))
        case "list", [values]:
            reader = _Kind(_numbered_key(int), _elements(_typed(values, info.ttl_ms)))
        case "map", [_, _] if info.name == POSITIONS:
            reader = _Kind(_partition, _position)
        case "map", [keys, values]:
            reader = _Kind(_map_key(keys), _typed(values, info.ttl_ms))
    return reader


def _whole_key(state_key: bytes) -> tuple[Any, None]:
    return _plain(_unpack(state_key)), None


def _split_position(data: bytes) -> tuple[dict[str, Any], None]:
    done, position, *latest = _unpack(data)  # with the latest event time, where tasks track it
    shown = {"done": done, "position": _plain(position)}
    return (shown | {"latest": latest[0]} if latest else shown), None


def _partition(state_key: bytes) -> tuple[None, dict[str, Any]]:
    _, entry = first_value(state_key)
    (partition,) = _unpack(entry)
    return None, {"partition": _plain(_unpack(partition))}


def _position(data: bytes) -> tuple[dict[str, Any], None]:
    (position,) = _unpack(data)
    return {"position": _plain(_unpack(position))}, None


def _numbered_key(number_of: Callable[[int], Any]) -> Callable[[bytes], tuple[Any, Any]]:
    """A key with a number after it: a position, or a time."""
    return lambda state_key: (
        _plain(_unpack(state_key[:-_NUMBER_BYTES])),
        number_of(int.from_bytes(state_key[-_NUMBER_BYTES:], "big")),
    )


_timer_by_key: Final = _numbered_key(lambda number: number - _TIME_BIAS)
_window_key: Final = _numbered_key(lambda number: {"start_ms": number - _TIME_BIAS})


def _timer_by_time(state_key: bytes) -> tuple[Any, int]:
    return _timer_by_key(state_key[_NUMBER_BYTES:] + state_key[:_NUMBER_BYTES])


def _window_records_key(state_key: bytes) -> tuple[Any, dict[str, int]]:
    key, window = _window_key(state_key[:-_NUMBER_BYTES])
    return key, {**window, "position": int.from_bytes(state_key[-_NUMBER_BYTES:], "big")}


def _timed_key(state_key: bytes) -> tuple[Any, dict[str, int]]:
    key, time_ms = _timer_by_key(state_key[_NUMBER_BYTES:-_POSITION_BYTES])
    position = int.from_bytes(state_key[-_POSITION_BYTES:], "big")
    return key, {"time_ms": time_ms, "position": position}


def _batch(data: bytes) -> list[dict[str, Any]]:
    keys, times, _, records = _unpack(data)
    return [
        {"key": _plain(_unpack(key)), "time_ms": time, "record": _plain(_unpack(record))}
        for key, time, record in zip(keys, times, records, strict=True)
    ]


_WINDOWS: Final = {
    "window-aggregate": _window_key,
    "window-records": _window_records_key,
    "sessions": _whole_key,
    "earlier-sessions": _numbered_key(lambda number: {"last_ms": number - _TIME_BIAS}),
    "count-window": _whole_key,
    "timed-records": _timed_key,
}


def _map_key(keys: TupleCodec) -> Callable[[bytes], tuple[Any, Any]]:
    def split(state_key: bytes) -> tuple[Any, Any]:
        key, entry = first_value(state_key)
        return _plain(_unpack(key)), _by_name(keys, entry)

    return split


def _typed(values: TupleCodec, ttl_ms: int | None) -> Callable[[bytes], tuple[Any, int | None]]:
    if ttl_ms is None:
        return lambda data: (_by_name(values, data), None)
    return lambda data: (_by_name(values, data[EXPIRY_BYTES:]), expiry_of(data))


def _elements(
    element: Callable[[bytes], tuple[Any, int | None]],
) -> Callable[[bytes], tuple[list[Any], list[int] | None]]:
    def read(data: bytes) -> tuple[list[Any], list[int] | None]:
        values: list[Any] = []
        expiries: list[int] = []
        for item in _unpack_elements(data):
            value, expires = element(item)
            values.append(value)
            if expires is not None:
                expiries.append(expires)
        return values, expiries or None

    return read


def _by_name(codec: TupleCodec, data: bytes) -> dict[str, Any]:
    names = map(attrgetter("name"), codec.fields)
    return dict(zip(names, map(_plain, codec.decode(data)), strict=True))


def _plain(value: Any) -> Any:
    """The value in JSON's types: bytes as base64, times as ISO 8601, decimals as text."""
    try:
        return msgspec.to_builtins(value, str_keys=True, enc_hook=str)
    except TypeError:
        return _with_text_keys(value)


def _with_text_keys(value: Any) -> Any:
    """As `_plain`, of values with dicts whose keys JSON does not have, such as tuples."""
    if isinstance(value, dict):
        return {
            key if isinstance(key, str) else msgspec.json.encode(_plain(key)).decode(): _plain(part)
            for key, part in value.items()
        }
    if isinstance(value, list | tuple | set | frozenset | deque):
        return list(map(_plain, value))
    return msgspec.to_builtins(value, enc_hook=str)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
