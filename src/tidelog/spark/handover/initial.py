"""What a query written by hand begins with: state of a job, or rows of another system.

Invariant: the job's store is read only until the first batch of the query is committed. What is
needed later is in the query's checkpoint: up to which event time the job has dropped what is late.
"""

import logging
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidelog.effects import SystemClock
from tidelog.events import Event
from tidelog.spark.handover.begin import Origin, begin
from tidelog.spark.handover.keys import KeyColumns
from tidelog.spark.handover.savepoint import event_time_of
from tidelog.spark.handover.typed import TypedState, compared, typed_rows
from tidelog.spark.processor.handle import SparkHandle
from tidelog.state.event_time import UNKNOWN
from tidelog.state.processor import TimeMode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OperatorOrigin:
    """An operator of a savepoint, as the user names it."""

    origin: Origin
    operator: str
    allowed: Collection[str] = ()
    """State that may be left out: `OPERATOR/STATE`, or an operator for all of its."""


@dataclass(frozen=True, slots=True)
class InitialState:
    """What the first batch of a query begins with."""

    rows: "DataFrame | None" = None
    """A row for each call of `handleInitialState`; None: the first batch is committed."""
    typed: TypedState | None = None
    """Puts the rows into states; None: the class does it, in `handleInitialState`."""
    watermark: int | None = None
    """Rows at or below this event time are late, from the first batch on."""


def from_savepoint(
    df: "DataFrame",
    origin: OperatorOrigin,
    keys: KeyColumns,
    handle: SparkHandle,
    time_mode: TimeMode,
) -> InitialState:
    """The state of an operator for the query over `df`; `handle` has the states of its class.

    Raises ConfigError, RestoreError, StateSchemaError and what the stores raise, before there is a
    query.
    """
    beginning = begin(origin.origin)
    handover, savepoint = beginning.handover, beginning.savepoint
    operator = handover.operator(origin.operator)
    minimum = event_time_of(operator).watermark
    watermark = None if minimum == UNKNOWN else minimum
    if savepoint is None:
        return InitialState(None, TypedState({}, 0), watermark)
    keys.check_types(operator.key_types)
    now_ms = SystemClock().now_ms()
    typed = compared(operator, handle.states, time_mode, origin.allowed, now_ms)
    for name, ttl_ms in typed.ttls.items():
        if ttl_ms is not None:
            Event.TTL_RESTARTS.log(logger, operator=operator.id, state=name)
    rows = typed_rows(df.sparkSession, savepoint, keys, typed, timers=time_mode != "none")
    return InitialState(rows, typed, watermark)
