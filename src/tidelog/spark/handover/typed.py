"""Stored state of a processor as the typed states of the same class in `transformWithState`.

Invariants: the rows of a key come in the order of their stored bytes, so a list keeps its order;
values are decoded by the schemas that the class declares, after a comparison with the stored ones;
what has expired is left out; a state is left out only where that is allowed.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa

from tidelog.checkpoint.manifest import OperatorState, StateInfo
from tidelog.errors import StateSchemaError
from tidelog.spark.handover.keys import KeyColumns
from tidelog.spark.handover.savepoint import StoredSavepoint
from tidelog.spark.processor.handle import SparkHandle, SparkMapState, SparkState
from tidelog.state.handles.timers import decode_time
from tidelog.state.key_groups import first_value
from tidelog.state.processor import TimeMode
from tidelog.state.registry import StateRegistry
from tidelog.state.schema.evolution import DECLARED
from tidelog.state.schema.schema import EXPIRY_BYTES, expiry_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TIMERS: Final = "$timers-by-key"
_BY_TIME: Final = "$timers-by-time"
_NUMBER_BYTES: Final = 8
"""The length of a list row's position, and of a timer's time, after the key."""
_ENTRY, _VALUE, _STATE = "tidelog_entry", "tidelog_value", "tidelog_state"

_decode_elements = msgspec.msgpack.Decoder(list[bytes]).decode


@dataclass(frozen=True, slots=True)
class TypedState:
    """Puts stored rows into the states of a function; travels to the executors pickled."""

    ttls: Mapping[str, int | None]
    """The stored states that the function has, by name, with the stored TTL in milliseconds."""
    now_ms: int
    """What was to expire by this time has expired."""

    def put(self, handle: SparkHandle, row: Any) -> None:
        """Put one row of the initial state, of the handle's current key."""
        name, entry, value = row[_STATE], bytes(row[_ENTRY]), bytes(row[_VALUE])
        if name == TIMERS:
            handle.registerTimer(decode_time(entry))
            return
        state: Any = handle.states[name]
        has_expiry = self.ttls[name] is not None
        decode = state.value_codec.decode
        if state.kind == "list":
            elements = [self._living(data, has_expiry) for data in _decode_elements(value)]
            state.appendList([decode(data) for data in elements if data is not None])
            return
        living = self._living(value, has_expiry)
        if living is None:
            return
        if isinstance(state, SparkMapState):
            state.updateValue(state.key_codec.decode(entry), decode(living))
        else:
            state.update(decode(living))

    def _living(self, data: bytes, has_expiry: bool) -> bytes | None:
        """The encoded value; None for one that has expired."""
        if not has_expiry:
            return data
        return data[EXPIRY_BYTES:] if expiry_of(data) > self.now_ms else None


def compared(
    operator: OperatorState,
    states: Mapping[str, SparkState],
    time_mode: TimeMode,
    allowed: Collection[str],
    now_ms: int,
) -> TypedState:
    """What of an operator's state goes to the `states` of a class.

    Raises StateSchemaError for a state that the class would read otherwise than it was stored, and
    for one that it does not have, unless `allowed` has the operator or `OPERATOR/STATE`.
    """
    registry = StateRegistry(operator.id, operator.states)
    ttls: dict[str, int | None] = {}
    for info in operator.states:
        if info.name in (TIMERS, _BY_TIME):
            if time_mode == "none" and not {operator.id, f"{operator.id}/{info.name}"} & {*allowed}:
                raise _timers_without_times(operator)
        elif info.kind not in DECLARED:
            raise _no_processor(operator, info)
        elif info.name in states:
            state = states[info.name]
            # A TTL may come or go: expiry starts again on Spark.
            registry.register(info.name, state.kind, state.schemas, info.ttl_ms)
            ttls[info.name] = info.ttl_ms
        elif not {operator.id, f"{operator.id}/{info.name}"} & {*allowed}:
            raise _dropped(operator, info)
    return TypedState(ttls, now_ms)


def typed_rows(
    spark: "SparkSession",
    savepoint: StoredSavepoint,
    keys: KeyColumns,
    state: TypedState,
    *,
    timers: bool,
) -> "DataFrame":
    """A row for each stored row: the key's columns, the state's name, entry and value.

    Those of a key come in order: Spark, which needs them partitioned and sorted by the key, leaves
    this order as it is.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415  (heavy)

    view = savepoint.frame(spark, keys.operator, "state", "state_kind", "key", "value")
    names = [*state.ttls, *([TIMERS] if timers else [])]
    columns = [f"`{name}` {kind}" for name, kind in zip(keys.names, keys.types, strict=True)]
    schema = ", ".join([*columns, f"{_STATE} string, {_ENTRY} binary, {_VALUE} binary"])
    rows = view.where(f.col("state").isin(names)).mapInArrow(_Split(keys), schema)
    partitions = int(spark.conf.get("spark.sql.shuffle.partitions") or "200")
    by_key = [f"`{name}`" for name in keys.names]
    return rows.repartition(partitions, *by_key).sortWithinPartitions(*by_key, _STATE, _ENTRY)


@dataclass(frozen=True, slots=True)
class _Split:
    """Splits stored keys into the user's key and what follows it."""

    keys: KeyColumns

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        names = [*self.keys.names, _STATE, _ENTRY, _VALUE]
        for batch in batches:
            keys: list[bytes] = []
            entries: list[bytes] = []
            columns = (batch.column(name).to_pylist() for name in ("state", "state_kind", "key"))
            for state, kind, key in zip(*columns, strict=True):
                if kind == "list" or state == TIMERS:
                    keys.append(key[:-_NUMBER_BYTES])
                    entries.append(key[-_NUMBER_BYTES:])
                else:
                    user_key, entry = first_value(key)
                    keys.append(user_key)
                    entries.append(entry)
            rows = [batch.column("state"), pa.array(entries, pa.binary()), batch.column("value")]
            yield pa.RecordBatch.from_arrays([*self.keys.arrays(keys), *rows], names=names)


def _timers_without_times(operator: OperatorState) -> StateSchemaError:
    return StateSchemaError(
        f"timers of operator {operator.id!r}",
        expected="time mode 'processing' or 'event', as the job has it",
        found="'none', in which no timer fires",
        action="pass that time_mode=; or leave the timers out with allow_non_restored_state="
        f"[{f'{operator.id}/{TIMERS}'!r}]",
        retry_safe=True,
    )


def _no_processor(operator: OperatorState, info: StateInfo) -> StateSchemaError:
    return StateSchemaError(
        f"state of operator {operator.id!r}",
        expected="the states of a StatefulProcessor: value, list and map states and timers",
        found=f"{info.name!r} of kind {info.kind}, of an operator of the library",
        action="run the job's own operators on Spark, with `tidelog spark run`",
        retry_safe=True,
    )


def _dropped(operator: OperatorState, info: StateInfo) -> StateSchemaError:
    return StateSchemaError(
        f"state {info.name!r} of operator {operator.id!r}",
        expected="it among the states that the class creates in init",
        found="none of that name, so what is stored of it would be lost",
        action="create it; or leave it out with allow_non_restored_state="
        f"[{f'{operator.id}/{info.name}'!r}]",
        retry_safe=True,
    )
