"""Stored states beside those of a class: what goes over, and what is refused."""

from typing import Any

import pytest

from tests.unit.spark.processor.fake import Handle
from tidelog.checkpoint.manifest import OperatorState, StateInfo
from tidelog.errors import StateSchemaError
from tidelog.spark.handover.typed import TypedState, compared
from tidelog.spark.processor.handle import SparkHandle
from tidelog.state.processor import TimeMode

STATES = (
    StateInfo(0, "total", "value", ("sum bigint",)),
    StateInfo(1, "lasts", "list", ("n int",), 60_000),
)
TIMERS = (
    StateInfo(2, "$timers-by-time", "timers", ("time bigint",)),
    StateInfo(3, "$timers-by-key", "timers", ("time bigint",)),
)


def compare(
    *states: StateInfo,
    time_mode: TimeMode = "processing",
    allowed: Any = (),
    total: str = "sum bigint",
) -> TypedState:
    """Against a class with the states `total` and `lasts`."""
    handle = SparkHandle(Handle(), time_mode)
    handle.getValueState("total", total)
    handle.getListState("lasts", "n int", 60_000 if time_mode == "processing" else None)
    return compared(OperatorState("f", 128, states, ()), handle.states, time_mode, allowed, 0)


def test_states_of_equal_names_and_schemas_go_over_with_their_stored_ttl() -> None:
    assert compare(*STATES, *TIMERS).ttls == {"total": None, "lasts": 60_000}
    assert compare(*STATES, time_mode="event").ttls == {"total": None, "lasts": 60_000}
    assert compare(*STATES, total="sum bigint, n int").ttls.keys() == {"total", "lasts"}


@pytest.mark.parametrize(
    ("states", "options", "message"),
    [
        ([StateInfo(0, "gone", "value", ("n int",))], {}, "'gone'.*would be lost.*f/gone"),
        ([StateInfo(0, "total", "list", ("sum bigint",))], {}, "kind was list"),
        ([StateInfo(0, "total", "value", ("sum string",))], {}, "'sum' was string"),
        ([*STATES, *TIMERS], {"time_mode": "none"}, r"in which no timer fires.*\$timers-by-key"),
        ([StateInfo(0, "aggregate", "aggregate", ("msgpack",))], {}, "tidelog spark run"),
    ],
)
def test_state_that_would_be_lost_or_read_otherwise_is_refused(
    states: list[StateInfo], options: Any, message: str
) -> None:
    with pytest.raises(StateSchemaError, match=message):
        compare(*states, **options)


@pytest.mark.parametrize("allowed", ["f", "f/gone"])
def test_a_dropped_state_may_be_allowed(allowed: str) -> None:
    gone = StateInfo(7, "gone", "value", ("n int",))
    assert compare(*STATES, gone, allowed=[allowed]).ttls.keys() == {"total", "lasts"}
