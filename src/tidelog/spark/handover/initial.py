"""What a query written by hand begins with: state of a job, or rows of another system.

Invariant: the job's store is read only until the first batch of the query is committed. What is
needed later is in the query's checkpoint: up to which event time the job has dropped what is late.
"""

import logging
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidelog.effects import SystemClock
from tidelog.errors import ConfigError
from tidelog.events import Event
from tidelog.spark.handover.document import Handover, QueryDirectory, without_rows
from tidelog.spark.handover.keys import KeyColumns
from tidelog.spark.handover.savepoint import read_savepoint, watermark_of
from tidelog.spark.handover.typed import TypedState, compared, typed_rows
from tidelog.spark.processor.handle import SparkHandle
from tidelog.state.processor import TimeMode
from tidelog.storage.open import StoreAccess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Origin:
    """A savepoint as the user names it, and what of it goes where."""

    savepoint: str
    """`URL@NAME`, `URL@N` or `URL@latest`."""
    operator: str
    location: str
    """The checkpoint directory of the query."""
    allowed: Collection[str] = ()
    """State that may be left out: `OPERATOR/STATE`, or an operator for all of its."""
    access: StoreAccess = StoreAccess()  # noqa: RUF009  (it is frozen)


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
    df: "DataFrame", origin: Origin, keys: KeyColumns, handle: SparkHandle, time_mode: TimeMode
) -> InitialState:
    """The state of an operator for the query over `df`; `handle` has the states of its class.

    Raises ConfigError, RestoreError, StateSchemaError and what the stores raise, before there is a
    query.
    """
    directory = QueryDirectory(origin.location, origin.access)
    if directory.begun():
        handover = directory.read()
        operator = handover.operator(origin.operator)
        if operator is None:
            raise _other_operator(origin, handover)
        Event.HANDOVER_COMPLETE.log(
            logger, operator=operator.id, checkpoint=handover.checkpoint, store=handover.store
        )
        return InitialState(None, TypedState({}, 0), watermark_of(operator))
    savepoint = read_savepoint(origin.savepoint, origin.access)
    operator, checkpoint = savepoint.operator(origin.operator), savepoint.checkpoint
    keys.check_types(operator.key_types)
    now_ms = SystemClock().now_ms()
    typed = compared(operator, handle.states, time_mode, origin.allowed, now_ms)
    for name, ttl_ms in typed.ttls.items():
        if ttl_ms is not None:
            Event.TTL_RESTARTS.log(logger, operator=operator.id, state=name)
    rows = typed_rows(df.sparkSession, savepoint, keys, typed, timers=time_mode != "none")
    operators = tuple(map(without_rows, checkpoint.operators))
    directory.write(Handover(savepoint.url, checkpoint.slot, checkpoint.job, operators))
    Event.HANDOVER_BEGINS.log(
        logger, operator=operator.id, checkpoint=checkpoint.slot, store=savepoint.url
    )
    return InitialState(rows, typed, watermark_of(operator))


def _other_operator(origin: Origin, handover: Handover) -> ConfigError:
    return ConfigError(
        f"operator {origin.operator!r}",
        expected=f"an operator of checkpoint {handover.checkpoint} of {handover.store}, which the "
        f"query at {origin.location} began with",
        found="none of that name",
        action="name the operator that it began with, or begin with a new checkpoint directory",
    )
