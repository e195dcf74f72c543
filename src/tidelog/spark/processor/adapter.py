"""A tidelog `StatefulProcessor` as Spark runs it: one object per partition and batch.

Invariants: every call of the function has its key current, in the state and in the timers; nothing
of an instance outlives its batch but its states; nothing here imports pyspark, whose objects come
in as arguments.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

from tidelog.errors import ConfigError
from tidelog.runtime.user_code import blame
from tidelog.spark.processor.handle import SparkHandle
from tidelog.spark.processor.rows import Shape, key_of, rows_of
from tidelog.state.processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimeMode,
    TimerValues,
)
from tidelog.state.schema.row import Row


class SparkProcessor:
    """The argument of pyspark's `transformWithState`; travels to the workers pickled.

    `columns` are those of the rows that the function sees, `output` is the shape of what it yields.
    """

    def __init__(
        self,
        processor: Callable[[], StatefulProcessor],
        time_mode: TimeMode,
        columns: tuple[str, ...],
        output: Shape,
    ) -> None:
        self._factory = processor
        self._time_mode = time_mode
        self._columns = columns
        self._output = output

    def init(self, handle: Any) -> None:
        """Make the function and its states; Spark calls it once more on the driver, to ask."""
        self._handle = SparkHandle(handle, self._time_mode)
        self._processor = initialized(self._factory, self._handle)
        self._name = type(self._processor).__name__

    def handleInputRows(
        self, key: Iterable[Any], rows: Iterable[Any], timerValues: Any
    ) -> Iterator[Row]:
        """Rows of one key in this batch."""
        user_key = key_of(key)
        self._handle.timers.use(user_key)
        with blame(f"{self._name}.handleInputRows"):
            given = rows_of(rows, self._columns)
            times = times_of(timerValues, self._time_mode)
            for row in self._processor.handleInputRows(user_key, given, times) or ():
                yield self._output.fit(row)

    def handleExpiredTimer(
        self, key: Iterable[Any], timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Row]:
        """A timer of a key; Spark removes it afterwards."""
        user_key, time = key_of(key), expiredTimerInfo.getExpiryTimeInMs()
        self._handle.timers.use(user_key)
        if not self._handle.timers.fires(time):
            return
        with blame(f"{self._name}.handleExpiredTimer"):
            times, info = times_of(timerValues, self._time_mode), ExpiredTimerInfo(time)
            for row in self._processor.handleExpiredTimer(user_key, times, info) or ():
                yield self._output.fit(row)

    def close(self) -> None:
        """The end of the partition's batch."""
        with blame(f"{self._name}.close"):
            self._processor.close()


class NoTimes(TimerValues):
    """The times in time mode 'none': Spark knows none, where the embedded runtime has a clock."""

    def getCurrentProcessingTimeInMs(self) -> int:
        """Raises ConfigError."""
        raise _no_time("getCurrentProcessingTimeInMs")

    def getCurrentWatermarkInMs(self) -> int:
        """Raises ConfigError."""
        raise _no_time("getCurrentWatermarkInMs")


def initialized(factory: Callable[[], StatefulProcessor], handle: SparkHandle) -> StatefulProcessor:
    """A new function with its states; raises ConfigError, StateSchemaError, UserFunctionError."""
    with blame(f"{getattr(factory, '__name__', 'the processor')}.init"):
        processor = factory()
        # The same calls by the same names; no base class, because what it holds is another thing.
        processor.init(cast(StatefulProcessorHandle, handle))
    handle.initialized()
    return processor


def times_of(values: Any, time_mode: TimeMode) -> TimerValues:
    """Times of the batch; Spark's watermark is 0 where ours is unknown."""
    if time_mode == "none":
        return NoTimes()
    watermark = values.getCurrentWatermarkInMs()
    return TimerValues(values.getCurrentProcessingTimeInMs(), watermark if watermark > 0 else -1)


def _no_time(call: str) -> ConfigError:
    return ConfigError(
        f"{call} in a query without times",
        expected="time mode 'processing' or 'event'",
        found="'none'",
        action="pass time_mode= to transform",
    )
