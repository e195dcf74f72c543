"""What cannot run on Spark is refused while the query is built, and the page says so."""

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tidelog.errors import ConfigError, UserFunctionError
from tidelog.spark import transform
from tidelog.spark.processor.schema import _CHANGED, KEPT
from tidelog.spark.processor.transform import KEY_TYPES
from tidelog.state.processor import StatefulProcessor


@dataclass
class Type:
    text: str

    def simpleString(self) -> str:
        return self.text


@dataclass
class Column:
    name: str
    dataType: Type


@dataclass
class Schema:
    fields: list[Column]


@dataclass
class Frame:
    """As much of a streaming data frame as the checks look at; anything else fails the test."""

    types: dict[str, str] = field(
        default_factory=lambda: {"k": "string", "at": "bigint", "ts": "timestamp"}
    )
    isStreaming: bool = True
    again: tuple[str, ...] = ()

    @property
    def schema(self) -> Schema:
        return Schema([Column(name, Type(text)) for name, text in self.types.items()])

    @property
    def columns(self) -> list[str]:
        return [*self.types, *self.again]


class Nothing(StatefulProcessor):
    def init(self, handle: Any) -> None:
        pass

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        return iter(())


class Brief(Nothing):
    def init(self, handle: Any) -> None:
        handle.getMapState("brief", "n int", "n int", 1_000)


class Stamped(Nothing):
    def init(self, handle: Any) -> None:
        handle.getValueState("last", "at timestamp")


class Ticking(Nothing):
    def init(self, handle: Any) -> None:
        handle.registerTimer(1)


class Broken(Nothing):
    def init(self, handle: Any) -> None:
        raise ValueError("no such file")


class Hasty(Nothing):
    def init(self, handle: Any) -> None:
        handle.getValueState("count", "n int").update((0,))


def build(processor: Any = Nothing, **options: Any) -> Any:
    frame = options.pop("df", Frame())
    return transform(frame, processor, **{"key": "k", "output_schema": "n int", **options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"df": Frame(isStreaming=False)}, "readStream"),
        ({"df": Frame(again=("at",))}, "found k, at, ts, at.*Next: rename or drop"),
        ({"key": "other"}, "key 'other'.*only the columns k, at, ts"),
        ({"key": ["k", "ts"]}, "key 'ts'.*found timestamp"),
        ({"key": []}, "key ''"),
        ({"time_mode": "EventTime"}, "'none', 'processing', 'event'; found 'EventTime'"),
        ({"event_time": "at"}, "event_time='at'.*time_mode='event'"),
        ({"event_time": "at", "time_mode": "processing"}, "time_mode='event'"),
        ({"event_time": "ts", "time_mode": "event"}, "bigint.*found timestamp.*unix_millis"),
        ({"event_time": "no", "time_mode": "event"}, "only the columns"),
        ({"event_time": "at", "time_mode": "event", "max_delay_ms": -1}, "max_delay_ms"),
        ({"processor": Brief}, "state 'brief' with a TTL"),
        ({"processor": Brief, "time_mode": "event"}, "state 'brief' with a TTL"),
        ({"processor": Hasty}, "update of state 'count' in init"),
        ({"processor": Ticking, "time_mode": "event"}, "registerTimer of the handle in init"),
        ({"processor": Stamped}, "field 'at' of state 'last'.*time zone"),
    ],
)
def test_a_query_that_would_behave_otherwise_is_refused(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        build(**options)


def test_an_init_that_fails_is_an_error_that_names_it() -> None:
    with pytest.raises(UserFunctionError, match=r"Broken.init.*no such file"):
        build(Broken)


def test_packages_that_spark_needs_and_that_are_missing_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "tidelog.spark.processor.transform.find_spec",
        lambda name: None if name == "google.protobuf" else object(),
    )
    with pytest.raises(ConfigError, match=r"found no protobuf.*pip install protobuf"):
        build()


def test_the_page_names_every_type_and_argument() -> None:
    page = (Path(__file__).parents[4] / "docs" / "guides" / "processor.md").read_text()
    named = [*KEPT, *_CHANGED, *KEY_TYPES, *inspect.signature(transform).parameters]
    assert [name for name in named if not re.search(rf"`{name}(`|<)", page)] == []
