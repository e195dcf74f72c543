"""States by name, as a program sees them: those that a checkpoint describes, to be read.

Invariant: a program sees plain values; how many columns the tuple has that holds one is stored.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final

from tidelog.checkpoint.manifest import StateInfo
from tidelog.errors import ConfigError
from tidelog.state.backend import KeyedBackend
from tidelog.state.handles.keyed import KeyedRows, ListHandle, MapHandle, ValueHandle
from tidelog.state.objects.values import ObjectEncoding
from tidelog.state.schema.ddl import UNTYPED
from tidelog.state.schema.schema import ValueCodec, parse_schema

Shown = Callable[[tuple[Any, ...]], Any]
"""What a program sees of a stored tuple."""

_only: Final = itemgetter(0)
_AGGREGATE: Final = "aggregate"


class AggregateState:
    """The value per key of a job's `aggregate`, to be read."""

    def __init__(self, backend: KeyedBackend, info: StateInfo) -> None:
        values = ObjectEncoding(f"values of operator {backend.registry.operator!r}")
        codec = ValueCodec(_only, lambda value: (value,), values.encode, values.decode)
        self.keyed = KeyedRows(backend, info, codec)


@dataclass(frozen=True, slots=True)
class NamedState:
    """A state, and what a program sees of its tuples."""

    state: ValueHandle | ListHandle | MapHandle | AggregateState
    value: Shown = _only
    entry: Shown = _only
    """What it sees of the key of a map's entry."""


def stored_states(backend: KeyedBackend, infos: Iterable[StateInfo]) -> dict[str, NamedState]:
    """The states that a checkpoint describes, but for those that only operators can read."""
    return {info.name: _stored(backend, info) for info in infos if is_readable(info)}


def named_state(states: Mapping[str, NamedState], name: str) -> NamedState:
    """The state of that name; raises ConfigError when there is none."""
    if name not in states:
        raise ConfigError(
            f"state {name!r}",
            expected=f"one of {', '.join(states) or 'none'}",
            found="none of that name",
            action="name a state that was declared, or that the store has",
        )
    return states[name]


def is_readable(info: StateInfo) -> bool:
    """Whether a state is of a kind that `stored_states` gives."""
    return info.kind in ("value", "list", "map", _AGGREGATE) and not info.name.startswith("$")


def _stored(backend: KeyedBackend, info: StateInfo) -> NamedState:
    name, ttl_ms, schema = info.name, info.ttl_ms, info.schema
    views = list(map(_shown, schema))
    match info.kind:
        case "value":
            return NamedState(ValueHandle(backend, name, schema[0], ttl_ms), views[0])
        case "list":
            return NamedState(ListHandle(backend, name, schema[0], ttl_ms), views[0])
        case "map":
            state = MapHandle(backend, name, schema[0], schema[1], ttl_ms)
            return NamedState(state, views[1], views[0])
    return NamedState(AggregateState(backend, info))


def _shown(schema: str) -> Shown:
    """One column is a value by itself, several are a tuple."""
    if schema == UNTYPED or len(parse_schema(schema).fields) == 1:
        return _only
    return tuple
