"""What cannot run on Spark is refused while the query is built, and the page says so."""

import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tidelog import ConfigError, StatefulProcessor, UserFunctionError
from tidelog.spark import transform
from tidelog.spark.processor.handle import _CHANGED, KEPT
from tidelog.spark.processor.transform import KEY_TYPES


def frame(*again: str, streaming: bool = True) -> Any:
    """As much of a streaming data frame as the checks look at; anything else fails the test."""
    types = {"k": "string", "at": "bigint", "ts": "timestamp"}
    names = [*types, *again]
    dtypes = [(name, types[name]) for name in names]
    return SimpleNamespace(isStreaming=streaming, dtypes=dtypes, columns=names)


def function(init: Callable[[Any], object]) -> type[StatefulProcessor]:
    """One that does this in `init`."""

    class Made(StatefulProcessor):
        def init(self, handle: Any) -> None:
            init(handle)

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
            return iter(())

    return Made


NOTHING = function(lambda handle: None)
BRIEF = function(lambda handle: handle.getMapState("brief", "n int", "n int", 1_000))
STAMPED = function(lambda handle: handle.getValueState("last", "at timestamp"))
TICKING = function(lambda handle: handle.registerTimer(1))
HASTY = function(lambda handle: handle.getValueState("count", "n int").update((0,)))
BROKEN = function(lambda handle: Path("no such file").read_bytes())


def build(processor: Any = NOTHING, **options: Any) -> Any:
    df = options.pop("df", frame())
    return transform(df, processor, **{"key": "k", "output_schema": "n int", **options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"df": frame(streaming=False)}, "readStream"),
        ({"df": frame("at")}, "found k, at, ts, at.*Next: rename or drop"),
        ({"key": "other"}, "key 'other'.*only the columns k, at, ts"),
        ({"key": ["k", "ts"]}, "key 'ts'.*found timestamp"),
        ({"key": []}, "key ''"),
        ({"time_mode": "EventTime"}, "'none', 'processing', 'event'; found 'EventTime'"),
        ({"event_time": "at"}, "event_time='at'.*time_mode='event'"),
        ({"event_time": "at", "time_mode": "processing"}, "time_mode='event'"),
        ({"event_time": "ts", "time_mode": "event"}, "bigint.*found timestamp.*unix_millis"),
        ({"event_time": "no", "time_mode": "event"}, "only the columns"),
        ({"event_time": "at", "time_mode": "event", "max_delay_ms": -1}, "max_delay_ms"),
        ({"processor": BRIEF}, "state 'brief' with a TTL"),
        ({"processor": BRIEF, "time_mode": "event"}, "state 'brief' with a TTL"),
        ({"processor": HASTY}, "update of state 'count' in init"),
        ({"processor": TICKING, "time_mode": "event"}, "registerTimer of the handle in init"),
        ({"processor": STAMPED}, "field 'at' of state 'last'.*time zone"),
    ],
)
def test_a_query_that_would_behave_otherwise_is_refused(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        build(**options)


def test_an_init_that_fails_is_an_error_that_names_it() -> None:
    with pytest.raises(UserFunctionError, match=r"Made.init.*no such file"):
        build(BROKEN)


def test_the_page_names_every_type_and_argument() -> None:
    page = (Path(__file__).parents[4] / "docs" / "guides" / "processor.md").read_text()
    named = [*KEPT, *_CHANGED, *KEY_TYPES, *inspect.signature(transform).parameters]
    assert [name for name in named if not re.search(rf"`{name}(`|<)", page)] == []
