"""The states of a program over a backend: as it declares them, or as a checkpoint describes them.

Invariant: a program sees plain values; how many columns the tuple has that holds one is stored.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final

from tidelog.checkpoint.manifest import StateInfo
from tidelog.errors import ConfigError
from tidelog.library.declarations import List, Map, State, Value, schema_of
from tidelog.state.backend import KeyedBackend
from tidelog.state.handles.keyed import KeyedRows
from tidelog.state.handles.list import ListState
from tidelog.state.handles.map import MapState
from tidelog.state.handles.value import ValueState
from tidelog.state.key_groups import decode_key, encode_key
from tidelog.state.objects.values import ObjectEncoding
from tidelog.state.schema.codec import ValueCodec
from tidelog.state.schema.schema import parse_schema

Shown = Callable[[tuple[Any, ...]], Any]
"""What a program sees of a stored tuple."""

POSITION_SCHEMAS: Final = ("partition binary", "position binary")
"""Of the map of positions, which belongs to the key None."""

POSITION_VALUES: Final = ObjectEncoding("position")

NO_KEY: Final = encode_key(None)

_only: Final = itemgetter(0)
_AGGREGATE: Final = "aggregate"


class AggregateState:
    """The value per key of a job's `aggregate`, to be read."""

    def __init__(self, backend: KeyedBackend, info: StateInfo) -> None:
        values = ObjectEncoding(f"values of operator {backend.registry.operator!r}")
        codec = ValueCodec(_only, lambda held: (held,), values.encode, values.decode)
        self.keyed = KeyedRows(backend, info, codec)


@dataclass(frozen=True, slots=True)
class NamedState:
    """A state, and what a program sees of its tuples."""

    state: ValueState | ListState | MapState | AggregateState
    value: Shown = _only
    entry: Shown = _only
    """What it sees of the key of a map's entry."""


def declared_state(backend: KeyedBackend, name: str, state: State) -> NamedState:
    """The state that a program declares; raises StateSchemaError when another is stored."""
    ttl_ms = None if state.ttl_s is None else round(state.ttl_s * 1000)
    values = schema_of(name, "value", state.type)
    match state:
        case Value():
            return NamedState(ValueState(backend, name, values, ttl_ms))
        case List():
            return NamedState(ListState(backend, name, values, ttl_ms))
        case Map():
            keys = schema_of(name, "key", state.key_type)
            return NamedState(MapState(backend, name, keys, values, ttl_ms))


def stored_states(backend: KeyedBackend, infos: Iterable[StateInfo]) -> dict[str, NamedState]:
    """The states that a checkpoint describes, but for those that only operators can read."""
    found = {info.name: _stored(backend, info) for info in infos}
    return {name: state for name, state in found.items() if state is not None}


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


def _stored(backend: KeyedBackend, info: StateInfo) -> NamedState | None:
    if not is_readable(info):
        return None
    name, schema, ttl_ms = info.name, info.schema, info.ttl_ms
    shown = [_shown(each) for each in schema]
    match info.kind:
        case "value":
            return NamedState(ValueState(backend, name, schema[0], ttl_ms), shown[0])
        case "list":
            return NamedState(ListState(backend, name, schema[0], ttl_ms), shown[0])
        case "map":
            state = MapState(backend, name, schema[0], schema[1], ttl_ms)
            return NamedState(state, shown[1], shown[0])
    return NamedState(AggregateState(backend, info))


def _shown(schema: str) -> Shown:
    """One column is a value by itself, several are a tuple."""
    if schema == "msgpack" or len(parse_schema(schema).fields) == 1:
        return _only
    return tuple


def stored_positions(backend: KeyedBackend, position: MapState) -> dict[Any, Any]:
    """The position of each partition that is stored."""
    backend.use_encoded_key(NO_KEY)
    decode = POSITION_VALUES.decode
    return {decode_key(partition): decode(at) for (partition,), (at,) in position.iterator()}
