"""What a processor gets in `init` on Spark: the calls of the embedded handle, over pyspark's.

Invariants: states are created in `init` only; a state or call that would mean something else on
Spark raises, while the query is built if `init` makes it; a timer that a handler deletes does not
fire, also when Spark has read it ahead; the times of a key are listed ascending.
"""

from collections.abc import Iterator
from typing import Any

from tidelog.errors import ConfigError
from tidelog.spark.processor.states import (
    SparkListState,
    SparkMapState,
    SparkValueState,
    spark_schema,
)
from tidelog.state.processor import StatefulProcessorHandle, TimeMode, created_late
from tidelog.state.schema.schema import Schema

Key = tuple[Any, ...]


class SparkTimers:
    """Timers of the current key; `handle` is pyspark's."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._key: Key = ()
        self._firing = False
        self._deleted: set[tuple[Key, int]] = set()
        """While timers fire: those deleted since, which Spark may hold in a chunk it has read."""

    def use(self, key: Key) -> None:
        """Make a key current."""
        self._key = key

    def fires(self, time_ms: int) -> bool:
        """Whether this timer of the current key, which Spark wants to fire, still exists."""
        self._firing = True
        return (self._key, time_ms) not in self._deleted

    def register(self, time_ms: int) -> None:
        """Add a timer for the current key; adding it twice is adding it once."""
        self._deleted.discard((self._key, time_ms))
        self._handle.registerTimer(time_ms)

    def delete(self, time_ms: int) -> None:
        """Remove a timer of the current key."""
        if self._firing:
            self._deleted.add((self._key, time_ms))
        self._handle.deleteTimer(time_ms)

    def list(self) -> Iterator[int]:
        """Times of the current key's timers, ascending."""
        return iter(sorted(self._handle.listTimers()))


class SparkHandle:
    """`StatefulProcessorHandle` over `handle`, the one of pyspark."""

    def __init__(self, handle: Any, time_mode: TimeMode) -> None:
        self._handle = handle
        self._time_mode = time_mode
        self._names: set[str] = set()
        self._initializing = True
        self.timers = SparkTimers(handle)

    def initialized(self) -> None:
        """Called after `init`."""
        self._initializing = False

    def getValueState(
        self, stateName: str, schema: Schema, ttlDurationMs: int | None = None
    ) -> SparkValueState:
        self._new(stateName, ttlDurationMs)
        values = spark_schema(stateName, schema)
        state = self._handle.getValueState(stateName, values.ddl, ttlDurationMs)
        return SparkValueState(state, values)

    def getListState(
        self, stateName: str, schema: Schema, ttlDurationMs: int | None = None
    ) -> SparkListState:
        self._new(stateName, ttlDurationMs)
        values = spark_schema(stateName, schema)
        state = self._handle.getListState(stateName, values.ddl, ttlDurationMs)
        return SparkListState(state, values)

    def getMapState(
        self,
        stateName: str,
        userKeySchema: Schema,
        valueSchema: Schema,
        ttlDurationMs: int | None = None,
    ) -> SparkMapState:
        self._new(stateName, ttlDurationMs)
        keys = spark_schema(stateName, userKeySchema)
        values = spark_schema(stateName, valueSchema)
        state = self._handle.getMapState(stateName, keys.ddl, values.ddl, ttlDurationMs)
        return SparkMapState(state, keys, values)

    # Kept as value states of Spark: nothing but calls of `getValueState`.
    getReducingState = StatefulProcessorHandle.getReducingState
    getAggregatingState = StatefulProcessorHandle.getAggregatingState

    def registerTimer(self, expiryTimestampMs: int) -> None:
        self._timers("registerTimer").register(expiryTimestampMs)

    def deleteTimer(self, expiryTimestampMs: int) -> None:
        self._timers("deleteTimer").delete(expiryTimestampMs)

    def listTimers(self) -> Iterator[int]:
        return self._timers("listTimers").list()

    def deleteIfExists(self, stateName: str) -> None:
        """Always raises ConfigError: it would remove more on Spark than embedded."""
        raise ConfigError(
            f"deleteIfExists({stateName!r})",
            expected="a call that means the same on both engines",
            found="one that removes the state of all keys on Spark, and of one key embedded",
            action="clear() the state of the key",
        )

    def _new(self, name: str, ttl_ms: int | None) -> None:
        if not self._initializing:
            raise created_late(name)
        # The rules of Spark's column families, and the one of the embedded handle.
        if (
            name in self._names
            or name in ("", "default")
            or name[0] in "$_"
            or name != name.strip()
        ):
            raise ConfigError(
                f"state {name!r}",
                expected="a name of its own, not 'default', without '$' or '_' in front and "
                "without spaces around it",
                action="rename it",
            )
        self._names.add(name)
        if ttl_ms is not None:
            self._check_ttl(name, ttl_ms)

    def _check_ttl(self, name: str, ttl_ms: int) -> None:
        if self._time_mode != "processing":
            raise ConfigError(
                f"state {name!r} with a TTL",
                expected="time mode 'processing': Spark lets state expire in no other",
                found=repr(self._time_mode),
                action="pass time_mode='processing', or remove the state by a timer",
            )
        if ttl_ms <= 0:
            raise ConfigError(
                f"TTL of state {name!r}",
                expected="more than 0 ms",
                found=str(ttl_ms),
                action="pass None for a state that never expires",
            )

    def _timers(self, call: str) -> SparkTimers:
        if self._time_mode == "none":
            raise no_time(f"{call} in a query without timers")
        return self.timers


def no_time(what: str) -> ConfigError:
    """The error of a call that needs times where a query has none."""
    return ConfigError(
        what,
        expected="time mode 'processing' or 'event'",
        found="'none'",
        action="pass time_mode= to transform",
    )
