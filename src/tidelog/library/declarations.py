"""What a program says of its states: a kind, the types of values, and how long they live."""

import datetime
import decimal
from collections.abc import Mapping
from dataclasses import dataclass
from types import GenericAlias
from typing import Any, Final, Generic, TypeVar, get_args, get_origin

from tidelog.errors import ConfigError

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
class Value(Generic[V]):
    """One value per key.

    `type` is bool, int (64 bits), float, str, bytes, a date, datetime or Decimal, or a list or dict
    of these, such as `list[str]`. `ttl_s` seconds after it was written a value is gone.
    """

    type: type[V] | GenericAlias
    ttl_s: float | None = None


@dataclass(frozen=True)
class List(Generic[V]):
    """A list per key, which is cheap to append to; `type` is that of an element, as in `Value`."""

    type: type[V] | GenericAlias
    ttl_s: float | None = None


@dataclass(frozen=True)
class Map(Generic[K, V]):
    """A map per key; an entry that changes is one change, however large the map is."""

    key_type: type[K] | GenericAlias
    type: type[V] | GenericAlias
    ttl_s: float | None = None


State = Value[Any] | List[Any] | Map[Any, Any]


def schema_of(name: str, column: str, kind: Any) -> str:
    """The schema of one column; raises ConfigError, naming the state, for another type."""
    return f"{column} {_type_name(name, kind)}"


def _type_name(name: str, kind: Any) -> str:
    if kind in _DDL:
        return _DDL[kind]
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is list and len(arguments) == 1:
        return f"array<{_type_name(name, arguments[0])}>"
    if origin is dict and len(arguments) == 2:
        return "map<{},{}>".format(*(_type_name(name, each) for each in arguments))
    raise ConfigError(
        f"type of state {name!r}",
        expected=f"{', '.join(each.__name__ for each in _DDL)}, or list[...] or dict[...] of them",
        found=repr(kind),
        action="declare one of these, or keep several values in several states",
    )
