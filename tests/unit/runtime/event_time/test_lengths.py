"""Lengths of time of `event_time` are given as those of windows and joins are."""

from datetime import timedelta
from typing import Any

import pytest

from tidelog import ConfigError, Job, Replayable
from tidelog.runtime.operators.event_time import EventTimeOptions


@pytest.mark.parametrize("length", [2_000, "2s", timedelta(seconds=2)])
def test_a_length_of_time_is_milliseconds_a_timedelta_or_a_text(length: Any) -> None:
    assert EventTimeOptions.of(length, length, length) == EventTimeOptions(2_000, 2_000, 2_000)


@pytest.mark.parametrize(
    "given", [{"max_delay_ms": -1}, {"max_ahead_ms": "soon"}, {"idle_after_ms": 0}]
)
def test_what_is_no_length_of_time_is_refused_by_its_name(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(given))):
        Job("late").source(Replayable([1])).event_time(lambda ms: ms, **given)
