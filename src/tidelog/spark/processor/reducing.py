"""Reducing and aggregating state over a value state of Spark.

Invariant: values are combined by the code that combines them embedded; only what holds the
combined value is another.
"""

from collections.abc import Callable
from typing import Any, cast

from tidelog.spark.processor.value import SparkValueState
from tidelog.state.reducing import AggregatingState, In, Out, ReducingState, Row
from tidelog.state.value import ValueState


class SparkReducingState(ReducingState):
    """The reduction of all tuples added for the current key, on Spark."""

    def __init__(self, value: SparkValueState, reduce: Callable[[Row, Row], Row]) -> None:
        # Not the base's: that one opens its value in an embedded backend.
        self._value = cast(ValueState, value)
        self._reduce = reduce


class SparkAggregatingState(AggregatingState[In, Out]):
    """An accumulator over all elements added for the current key, on Spark."""

    def __init__(
        self,
        value: SparkValueState,
        *,
        create: Callable[[], Row],
        add: Callable[[Row, In], Row],
        result: Callable[[Row], Out],
    ) -> None:
        self._value = cast(ValueState, value)
        self._create: Callable[[], Row] = create
        self._add: Callable[[Row, Any], Row] = add
        self._result: Callable[[Row], Out] = result
