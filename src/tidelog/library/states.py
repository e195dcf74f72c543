"""The states of a program, as it declares them."""

import datetime
import decimal
from collections.abc import Mapping
from dataclasses import dataclass
from types import GenericAlias
from typing import Any, Final, Generic, TypeVar, get_args, get_origin

from tidelog.errors import ConfigError, require
from tidelog.state.backend import KeyedBackend
from tidelog.state.handles.keyed import ListHandle, MapHandle, ValueHandle
from tidelog.state.stored_states import NamedState

K = TypeVar("K")
V = TypeVar("V")

_DDL: Final[Mapping[Any, str]] = {
    bool: "boolean",
    int: "bigint",
    float: "double",
    str: "string",
    bytes: "binary",
    datetime.date: "date",
    datetime.datetime: "timestamp",
    decimal.Decimal: "decimal",
}


@dataclass(frozen=True)
class ValueState(Generic[V]):
    """One value per key.

    `type` is bool, int (64 bits), float, str, bytes, a date, datetime or Decimal, or a list or dict
    of these, such as `list[str]`. `ttl_s` seconds after it was written a value is gone.
    """

    type: type[V] | GenericAlias
    ttl_s: float | None = None


@dataclass(frozen=True)
class ListState(Generic[V]):
    """A list per key, cheap to append to; `type` is that of an element, as in `ValueState`."""

    type: type[V] | GenericAlias
    ttl_s: float | None = None


@dataclass(frozen=True)
class MapState(Generic[K, V]):
    """A map per key; an entry that changes is one change, however large the map is."""

    key_type: type[K] | GenericAlias
    type: type[V] | GenericAlias
    ttl_s: float | None = None


State = ValueState[Any] | ListState[Any] | MapState[Any, Any]


def _type_name(name: str, kind: Any) -> str:
    """The type as schemas have it; raises ConfigError, naming the state, for another one."""
    if isinstance(kind, type) and kind in _DDL:  # a list of types cannot be looked for
        return _DDL[kind]
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is list and len(arguments) == 1:
        return f"array<{_type_name(name, arguments[0])}>"
    if origin is dict and len(arguments) == 2:
        return "map<{},{}>".format(*(_type_name(name, argument) for argument in arguments))
    raise ConfigError(
        f"type of state {name!r}",
        expected=f"{', '.join(kind.__name__ for kind in _DDL)}, or list[...] or dict[...] of them",
        found=repr(kind),
        action="declare one of these, or keep several values in several states",
    )


_LONGEST_S: Final = 1e12
"""The time of expiry is stored in milliseconds, and has 64 bits."""


def check_states(declared: Mapping[str, State]) -> None:
    """Raises ConfigError for what declares no state."""
    is_mapping = isinstance(declared, Mapping)
    require("state=", repr(declared), is_mapping, "{name: ValueState(type), ...}")
    for name, state in declared.items():
        is_valid = isinstance(name, str) and is_attribute(name)
        expected = "a printable text that begins with neither $ nor __, and no _key or _prefix"
        require(f"name of state {name!r}", repr(name), is_valid, expected)
        expected = "ValueState(type), ListState(type) or MapState(key type, type)"
        require(
            f"state {name!r}",
            repr(state),
            isinstance(state, ValueState | ListState | MapState),
            expected,
        )
        ttl_s = state.ttl_s
        is_time = ttl_s is None or (isinstance(ttl_s, int | float) and 0.001 <= ttl_s <= _LONGEST_S)
        expected = f"seconds, 0.001 to {_LONGEST_S:.0e}, or None: it never expires"
        require(f"ttl_s= of state {name!r}", repr(ttl_s), is_time, expected)
        _type_name(name, state.type)
        if isinstance(state, MapState):
            _type_name(name, state.key_type)


def is_attribute(name: str) -> bool:
    """Whether a state can be an attribute of `KeyStates`, which has some of its own."""
    return (
        name.isprintable() and not name.startswith(("$", "__")) and name not in ("_prefix", "_key")
    )


def declared_states(backend: KeyedBackend, declared: Mapping[str, State]) -> dict[str, NamedState]:
    """The states that a program declares; raises StateSchemaError when others are stored."""
    return {name: _declared_state(backend, name, state) for name, state in declared.items()}


def _declared_state(backend: KeyedBackend, name: str, state: State) -> NamedState:
    ttl_ms = None if state.ttl_s is None else round(state.ttl_s * 1000)
    values = f"value {_type_name(name, state.type)}"
    match state:
        case ValueState():
            return NamedState(ValueHandle(backend, name, values, ttl_ms))
        case ListState():
            return NamedState(ListHandle(backend, name, values, ttl_ms))
        case MapState():
            keys = f"key {_type_name(name, state.key_type)}"
            return NamedState(MapHandle(backend, name, keys, values, ttl_ms))
