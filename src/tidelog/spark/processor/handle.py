"""What a processor gets on Spark: the calls of the embedded handle and its states, over pyspark's.

Values are kept as Spark's own types, a column per field, not as bytes of tidelog: so Spark's state
data source shows them, its schema check guards them at every restart, and the checkpoint is the
one Spark would write if it ran the class itself.

Invariants: states are created in `init` only; a state or call that would mean something else on
Spark raises, while the query is built if `init` makes it; a type is let through only if Spark
returns its values as they were written. A list or map is read whole before its first element is
handed out, so it may be changed meanwhile. Elements of a list come in the order of their appends,
entries of a map in that of their keys' msgpack bytes, as embedded. A timer that a handler deletes
does not fire, also when Spark has read it ahead; the times of a key are listed ascending.
"""

import re
from collections.abc import Iterator
from operator import itemgetter
from typing import Any, ClassVar, Final

from tidelog.errors import ConfigError
from tidelog.state.processor import Migrate, StatefulProcessorHandle, TimeMode, created_late
from tidelog.state.schema.ddl import quoted_column
from tidelog.state.schema.schema import Schema, TupleCodec, parse_schema

KEPT: Final = frozenset(
    {"boolean", "tinyint", "smallint", "int", "bigint", "double", "string", "binary", "date"}
)
"""Scalar types whose values Spark returns as they were written."""

_NESTED: Final = frozenset({"array", "struct"})
_CHANGED: Final = {
    "float": ("keeps 32 bits of a number that has 64 embedded", "double"),
    "decimal": ("rewrites the number to its own scale", "string, or bigint of the smallest unit"),
    "timestamp": ("drops its time zone", "bigint with milliseconds"),
    "map": ("forgets the order of its entries", "map state, or array<struct<key:..,value:..>>"),
}
"""Types that Spark takes and changes: how, and what to use instead."""

_TYPE_WORD: Final = re.compile(r"(?:^|[<,:])([a-z]+)(?=$|[<>,(])")


def spark_schema(state: str, schema: Schema) -> tuple[TupleCodec, str]:
    """A schema's codec, whose check is the embedded one: what does not fit there does not fit here;
    and its DDL for Spark, where every column may be null, as embedded.

    Raises ConfigError for a type that Spark would change, StateSchemaError for no schema.
    """
    codec = parse_schema(schema)
    for field in codec.fields:
        for word in _TYPE_WORD.findall(field.type_name):
            if word in KEPT or word in _NESTED:
                continue
            change, instead = _CHANGED[word]
            raise ConfigError(
                f"field {field.name!r} of state {state!r}",
                expected="a type that Spark returns as it was written",
                found=f"{field.type_name}: Spark {change}",
                action=f"use {instead}",
            )
        if "(" in field.type_name:
            raise ConfigError(
                f"field {field.name!r} of state {state!r}",
                expected="a type without a length",
                found=field.type_name,
                action="leave the length out",
            )
    return codec, ", ".join(quoted_column(f) for f in codec.fields)


def _plain(value: Any) -> Any:
    """A value read from Spark's state as it is embedded: structs are tuples, binary is bytes."""
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    if isinstance(value, list):
        return list(map(_plain, value))
    return bytes(value) if isinstance(value, bytearray) else value


class SparkState:
    """What value, list and map states share; `state` is pyspark's."""

    kind: ClassVar[str]

    def __init__(self, state: Any, values: TupleCodec) -> None:
        self._state = state
        self.value_codec = values

    @property
    def schemas(self) -> tuple[str, ...]:
        """As a manifest has them."""
        return (self.value_codec.schema,)

    def exists(self) -> bool:
        """Whether the key has something in the state that has not expired."""
        return bool(self._state.exists())

    def clear(self) -> None:
        """Remove all that the key has in the state."""
        self._state.clear()


class SparkValueState(SparkState):
    """`tidelog.state.handles.keyed.ValueHandle` on Spark; `state` is pyspark's."""

    kind = "value"

    def get(self) -> tuple[Any, ...] | None:
        value = self._state.get()
        return None if value is None else _plain(tuple(value))

    def update(self, newValue: tuple[Any, ...]) -> None:
        self._state.update(self.value_codec.check(newValue))


class SparkListState(SparkState):
    """`tidelog.state.handles.keyed.ListHandle` on Spark; `state` is pyspark's."""

    kind = "list"

    def get(self) -> Iterator[tuple[Any, ...]]:
        return iter([_plain(tuple(element)) for element in self._state.get()])

    def put(self, newState: list[tuple[Any, ...]]) -> None:
        elements = self._checked(newState)
        if elements:
            self._state.put(elements)
        else:
            self._state.clear()  # Spark refuses an empty list.

    def appendValue(self, newState: tuple[Any, ...]) -> None:
        self._state.appendValue(self.value_codec.check(newState))

    def appendList(self, newState: list[tuple[Any, ...]]) -> None:
        elements = self._checked(newState)
        if elements:
            self._state.appendList(elements)

    def _checked(self, values: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        return list(map(self.value_codec.check, values))


Entry = tuple[tuple[Any, ...], tuple[Any, ...]]


class SparkMapState(SparkState):
    """`tidelog.state.handles.keyed.MapHandle` on Spark; `state` is pyspark's."""

    kind = "map"

    def __init__(self, state: Any, keys: TupleCodec, values: TupleCodec) -> None:
        super().__init__(state, values)
        self.key_codec = keys

    @property
    def schemas(self) -> tuple[str, ...]:
        return self.key_codec.schema, self.value_codec.schema

    def getValue(self, key: tuple[Any, ...]) -> tuple[Any, ...] | None:
        value = self._state.getValue(self.key_codec.check(key))
        return None if value is None else _plain(tuple(value))

    def containsKey(self, key: tuple[Any, ...]) -> bool:
        return bool(self._state.containsKey(self.key_codec.check(key)))

    def updateValue(self, key: tuple[Any, ...], value: tuple[Any, ...]) -> None:
        self._state.updateValue(self.key_codec.check(key), self.value_codec.check(value))

    def iterator(self) -> Iterator[Entry]:
        encode = self.key_codec.encode
        entries = [
            (_plain(tuple(key)), _plain(tuple(value))) for key, value in self._state.iterator()
        ]
        return iter(sorted(entries, key=lambda entry: encode(entry[0])))

    def keys(self) -> Iterator[tuple[Any, ...]]:
        return map(itemgetter(0), self.iterator())

    def values(self) -> Iterator[tuple[Any, ...]]:
        return map(itemgetter(1), self.iterator())

    def removeKey(self, key: tuple[Any, ...]) -> None:
        self._state.removeKey(self.key_codec.check(key))


Key = tuple[Any, ...]


class SparkHandle:
    """`StatefulProcessorHandle` over `handle`, the one of pyspark; one key is current."""

    def __init__(self, handle: Any, time_mode: TimeMode) -> None:
        self._handle = handle
        self._time_mode = time_mode
        self.states: dict[str, SparkState] = {}
        """The states that `init` has created, by name."""
        self._initializing = True
        self._key: Key = ()
        self._firing = False
        self._deleted: set[tuple[Key, int]] = set()
        """While timers fire: those deleted since, which Spark may hold in a chunk it has read."""

    def initialized(self) -> None:
        """Called after `init`."""
        self._initializing = False

    def use(self, key: Key) -> None:
        """Make a key current."""
        self._key = key

    def fires(self, time_ms: int) -> bool:
        """Whether this timer of the current key, which Spark wants to fire, still exists."""
        self._firing = True
        return (self._key, time_ms) not in self._deleted

    def getValueState(
        self,
        stateName: str,
        schema: Schema,
        ttlDurationMs: int | None = None,
        *,
        migrate: Migrate | None = None,
    ) -> SparkValueState:
        self._new(stateName, ttlDurationMs, migrate)
        codec, ddl = spark_schema(stateName, schema)
        state = SparkValueState(self._handle.getValueState(stateName, ddl, ttlDurationMs), codec)
        self.states[stateName] = state
        return state

    def getListState(
        self,
        stateName: str,
        schema: Schema,
        ttlDurationMs: int | None = None,
        *,
        migrate: Migrate | None = None,
    ) -> SparkListState:
        self._new(stateName, ttlDurationMs, migrate)
        codec, ddl = spark_schema(stateName, schema)
        state = SparkListState(self._handle.getListState(stateName, ddl, ttlDurationMs), codec)
        self.states[stateName] = state
        return state

    def getMapState(
        self,
        stateName: str,
        userKeySchema: Schema,
        valueSchema: Schema,
        ttlDurationMs: int | None = None,
        *,
        migrate: Migrate | None = None,
    ) -> SparkMapState:
        self._new(stateName, ttlDurationMs, migrate)
        keys, key_ddl = spark_schema(stateName, userKeySchema)
        values, value_ddl = spark_schema(stateName, valueSchema)
        state = SparkMapState(
            self._handle.getMapState(stateName, key_ddl, value_ddl, ttlDurationMs), keys, values
        )
        self.states[stateName] = state
        return state

    # Kept as value states of Spark: nothing but calls of `getValueState`.
    getReducingState = StatefulProcessorHandle.getReducingState
    getAggregatingState = StatefulProcessorHandle.getAggregatingState

    def registerTimer(self, expiryTimestampMs: int) -> None:
        self._require_times("registerTimer")
        self._deleted.discard((self._key, expiryTimestampMs))
        self._handle.registerTimer(expiryTimestampMs)

    def deleteTimer(self, expiryTimestampMs: int) -> None:
        self._require_times("deleteTimer")
        if self._firing:
            self._deleted.add((self._key, expiryTimestampMs))
        self._handle.deleteTimer(expiryTimestampMs)

    def listTimers(self) -> Iterator[int]:
        self._require_times("listTimers")
        return iter(sorted(self._handle.listTimers()))

    def deleteIfExists(self, stateName: str) -> None:
        """Always raises ConfigError: it would remove more on Spark than embedded."""
        raise ConfigError(
            f"deleteIfExists({stateName!r})",
            expected="a call that means the same on both engines",
            found="one that removes the state of all keys on Spark, and of one key embedded",
            action="clear() the state of the key",
        )

    def _new(self, name: str, ttl_ms: int | None, migrate: Migrate | None) -> None:
        if not self._initializing:
            raise created_late(name)
        if migrate is not None:
            raise ConfigError(
                f"migrate= of state {name!r}",
                expected="none on Spark, which compares the stored schema itself",
                found="a function",
                action="leave it out; another type of a stored state needs a new name on Spark",
            )
        # The rules of Spark's column families, and the one of the embedded handle.
        if (
            name in self.states
            or name in ("", "default")
            or name[0] in "$_"
            or name != name.strip()
        ):
            raise ConfigError(
                f"state {name!r}",
                expected="a name of its own, not 'default', without '$' or '_' in front and "
                "without spaces around it",
                found="one that is taken" if name in self.states else "another name",
                action="rename it",
            )
        if ttl_ms is not None and self._time_mode != "processing":
            raise ConfigError(
                f"state {name!r} with a TTL",
                expected="time mode 'processing': Spark lets state expire in no other",
                found=repr(self._time_mode),
                action="pass time_mode='processing', or remove the state by a timer",
            )
        if ttl_ms is not None and ttl_ms <= 0:
            raise ConfigError(
                f"TTL of state {name!r}",
                expected="more than 0 ms",
                found=str(ttl_ms),
                action="pass None for a state that never expires",
            )

    def _require_times(self, call: str) -> None:
        if self._time_mode == "none":
            raise no_time(f"{call} in a query without timers")


def no_time(what: str) -> ConfigError:
    """The error of a call that needs times where a query has none."""
    return ConfigError(
        what,
        expected="time mode 'processing' or 'event'",
        found="'none'",
        action="pass time_mode= to transform",
    )
