"""A tidelog `StatefulProcessor` as Spark runs it: one object per partition and batch.

Invariants: every call of the function has its key current, in the state and in the timers; nothing
of an instance outlives its batch but its states; nothing here imports pyspark, whose objects come
in as arguments. The function sees rows of tidelog with the columns it was promised, in their order,
and structs within as rows too, as the embedded JSON source makes them. Every field of the output
schema gets the value the function gave it, by name or, where it gave none, by position: Spark
itself would fill a missing name with null and drop an unknown one.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from tidelog.errors import UserFunctionError
from tidelog.runtime.user_code import user_code
from tidelog.spark.handover.typed import TypedState
from tidelog.spark.processor.handle import SparkHandle, no_time
from tidelog.state.processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimeMode,
    TimerValues,
)
from tidelog.state.schema.row import Row

UNKNOWN_MS: Final = -1
"""A watermark that is not known, as functions see it."""


@dataclass(frozen=True, slots=True)
class TypeNames:
    """The names within a type: of a struct's fields and what lies in them, or of elements."""

    fields: tuple[str, ...] | None = None
    """Names of the fields of a row; None for an array, a map and a scalar."""
    inner: tuple["TypeNames", ...] = ()

    def fit(self, value: Any) -> Any:
        """The value with rows of exactly these names; raises UserFunctionError."""
        if value is None or not self.inner:
            return value
        if self.fields is None:
            (element,) = self.inner
            return list(map(element.fit, value)) if isinstance(value, list | tuple) else value
        values = self._in_order(value)
        return Row.of(self.fields, (s.fit(v) for s, v in zip(self.inner, values, strict=True)))

    def _in_order(self, value: Any) -> Sequence[Any]:
        fields = self.fields or ()
        names = value if isinstance(value, Mapping) else getattr(value, "_fields", ())
        # A row of pyspark has its names elsewhere.
        names = names or getattr(value, "__fields__", ())
        if names:
            if set(names) == set(fields) and len(names) == len(fields):
                by_name = (
                    value if isinstance(value, Mapping) else dict(zip(names, value, strict=True))
                )
                return [by_name[field] for field in fields]
        elif isinstance(value, tuple) and len(value) == len(fields):
            return value
        raise UserFunctionError(
            "an output row",
            expected=f"the fields {', '.join(fields)}",
            found=repr(value),
            action="yield a Row with these fields, or change output_schema",
        )


def shape_of(data_type: Any) -> TypeNames:
    """The shape of a `DataType` of pyspark."""
    kind = data_type.typeName()
    if kind == "struct":
        inner = tuple(shape_of(field.dataType) for field in data_type.fields)
        return TypeNames(tuple(data_type.names), inner)
    if kind == "array":
        return TypeNames(None, (shape_of(data_type.elementType),))
    return TypeNames()


@dataclass(eq=False)
class SparkProcessor:
    """The argument of pyspark's `transformWithState`; travels to the workers pickled.

    `_columns` are those of the rows that the function sees, `_output` is the shape of what it
    yields. `_typed` puts stored rows into the states; None: the function itself gets the rows of
    an initial state. No watermark is below `_watermark`.
    """

    _factory: Callable[[], StatefulProcessor]
    _time_mode: TimeMode
    _columns: tuple[str, ...]
    _output: TypeNames
    _typed: TypedState | None = None
    _watermark: int = UNKNOWN_MS

    def init(self, handle: Any) -> None:
        """Make the function and its states; Spark calls it once more on the driver, to ask."""
        self._handle = SparkHandle(handle, self._time_mode)
        self._processor = initialized(self._factory, self._handle)
        self._name = type(self._processor).__name__

    def handleInputRows(
        self, key: Iterable[Any], rows: Iterable[Any], timerValues: Any
    ) -> Iterator[Row]:
        """Rows of one key in this batch."""
        user_key = _key_of(key)
        self._handle.use(user_key)
        with user_code(f"{self._name}.handleInputRows"):
            cut_rows = _rows_of(rows, self._columns)
            times = self._times_of(timerValues)
            for row in self._processor.handleInputRows(user_key, cut_rows, times) or ():
                yield self._output.fit(row)

    def handleExpiredTimer(
        self, key: Iterable[Any], timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Row]:
        """A timer of a key; Spark removes it afterwards."""
        user_key, time = _key_of(key), expiredTimerInfo.getExpiryTimeInMs()
        self._handle.use(user_key)
        if not self._handle.fires(time):
            return
        with user_code(f"{self._name}.handleExpiredTimer"):
            times, info = self._times_of(timerValues), ExpiredTimerInfo(time)
            for row in self._processor.handleExpiredTimer(user_key, times, info) or ():
                yield self._output.fit(row)

    def handleInitialState(self, key: Iterable[Any], initialState: Any, timerValues: Any) -> None:
        """A row of the initial state, in the first batch, before the rows of its key."""
        user_key = _key_of(key)
        self._handle.use(user_key)
        if self._typed is not None:
            self._typed.put(self._handle, initialState)
            return
        with user_code(f"{self._name}.handleInitialState"):
            (row,) = _rows_of([initialState], initialState.__fields__)
            self._processor.handleInitialState(user_key, row, self._times_of(timerValues))

    def close(self) -> None:
        """The end of the partition's batch."""
        with user_code(f"{self._name}.close"):
            self._processor.close()

    def _times_of(self, values: Any) -> TimerValues:
        """Times of the batch; Spark's watermark is 0 where ours is unknown."""
        if self._time_mode == "none":
            return _NoTimes()
        watermark = max(values.getCurrentWatermarkInMs() or UNKNOWN_MS, self._watermark)
        return TimerValues(values.getCurrentProcessingTimeInMs(), watermark)


class _NoTimes(TimerValues):
    """The times in time mode 'none': Spark knows none, where the embedded runtime has a clock."""

    def getCurrentProcessingTimeInMs(self) -> int:
        raise no_time("getCurrentProcessingTimeInMs in a query without times")

    def getCurrentWatermarkInMs(self) -> int:
        raise no_time("getCurrentWatermarkInMs in a query without times")


def initialized(factory: Callable[[], StatefulProcessor], handle: SparkHandle) -> StatefulProcessor:
    """A new function with its states; raises ConfigError, StateSchemaError, UserFunctionError."""
    with user_code(f"{getattr(factory, '__name__', 'the processor')}.init"):
        processor = factory()
        # The same calls by the same names; no base class, because what it holds is another thing.
        processor.init(cast(StatefulProcessorHandle, handle))
    handle.initialized()
    return processor


def _rows_of(rows: Iterable[Any], columns: Sequence[str]) -> Iterator[Row]:
    """Rows of pyspark, cut to `columns`."""
    indexes: list[int] | None = None
    for row in rows:
        if indexes is None:
            # Spark puts the key's columns first, and adds the one with the event time.
            names = list(row.__fields__)
            indexes = [names.index(column) for column in columns]
        yield Row.of(columns, (nested(row[position]) for position in indexes))


def _key_of(key: Iterable[Any]) -> tuple[Any, ...]:
    """A grouping key; Spark may hand out binary as bytearray (`pyspark.binaryAsBytes`)."""
    return tuple(bytes(part) if isinstance(part, bytearray) else part for part in key)


def nested(value: Any) -> Any:
    """A value of pyspark or of Arrow as the embedded sources give it: structs are rows."""
    if isinstance(value, dict):
        return Row.of(value, map(nested, value.values()))
    if hasattr(value, "__fields__"):
        return Row.of(value.__fields__, map(nested, value))
    return list(map(nested, value)) if isinstance(value, list) else value
