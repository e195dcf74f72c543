"""What means something else on Spark is refused; timers behave as embedded."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.unit.spark.processor.fake import Expiry, Handle, SparkRow, Times
from tidelog import ConfigError, Row, StatefulProcessor, StateSchemaError, UserFunctionError
from tidelog.spark.processor.adapter import SparkProcessor, TypeNames
from tidelog.spark.processor.handle import SparkHandle
from tidelog.state.processor import TimeMode

ANY = TypeNames()


def migrated(handle: SparkHandle) -> object:
    return handle.getValueState("renamed", "n int", migrate=lambda old: (old.m,))


def state(name: str, ttl: int | None = None) -> Callable[[SparkHandle], object]:
    return lambda handle: handle.getListState(name, "n int", ttl)


def late(handle: SparkHandle) -> None:
    handle.initialized()
    handle.getValueState("late", "n int")


@pytest.mark.parametrize(
    ("mode", "define", "message"),
    [
        *(
            (
                mode,
                lambda handle: handle.getValueState("brief", "n int", 1_000),
                r"state 'brief' with a TTL.*time_mode='processing'",
            )
            for mode in ("none", "event")
        ),
        *(("processing", state("brief", ttl), "TTL of state 'brief'") for ttl in (0, -1)),
        *(
            ("none", state(name), "Next: rename it")
            for name in ("", "default", "_mine", "$mine", " mine", "taken")
        ),
        ("none", late, "within init"),
        ("none", lambda handle: handle.deleteIfExists("taken"), "state of all keys on Spark"),
        ("none", migrated, "compares the stored schema itself"),
    ],
)
def test_a_state_that_would_be_another_on_spark_is_refused(
    mode: TimeMode, define: Callable[[SparkHandle], object], message: str
) -> None:
    handle = SparkHandle(Handle(), mode)
    handle.getValueState("taken", "n int")
    with pytest.raises((ConfigError, StateSchemaError), match=message):
        define(handle)
    SparkHandle(Handle(), "processing").getMapState("brief", "n int", "n int", 1_000)


def test_without_a_time_mode_there_are_neither_timers_nor_times() -> None:
    class Asks(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self.handle = handle

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
            for call in (
                lambda: self.handle.registerTimer(1),
                lambda: self.handle.deleteTimer(1),
                self.handle.listTimers,
                timerValues.getCurrentProcessingTimeInMs,
                timerValues.getCurrentWatermarkInMs,
            ):
                with pytest.raises(ConfigError, match="pass time_mode= to transform"):
                    call()
            yield Row(asked=True)

    adapter = SparkProcessor(Asks, "none", (), ANY)
    adapter.init(Handle())
    assert list(adapter.handleInputRows(("a",), iter(()), Times(-1, -1))) == [Row(asked=True)]


class Echo(StatefulProcessor):
    """Yields what it was called with."""

    def init(self, handle: Any) -> None:
        pass

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
        seen = [(row.asDict(recursive=True), isinstance(row, Row)) for row in rows]
        yield Row(key=key, seen=seen, watermark=timerValues.getCurrentWatermarkInMs())


def test_rows_have_the_columns_of_the_stream_in_their_order_and_structs_are_rows() -> None:
    adapter = SparkProcessor(Echo, "event", ("n", "k", "inner"), ANY)
    adapter.init(Handle())
    names = ("k", "n", "inner", "tidelog_event_time")
    given = [SparkRow.of(names, (b"x", 1, {"many": [{"v": 2}]}, None))]
    (out,) = adapter.handleInputRows([bytearray(b"x")], given, Times(5, 0))
    assert out.key == (b"x",)
    assert out.seen == [({"n": 1, "k": b"x", "inner": {"many": [{"v": 2}]}}, True)]
    assert out.watermark == -1, "Spark's 0 before the first watermark is our -1"


def test_a_function_that_returns_nothing_yields_no_rows() -> None:
    class Silent(Echo):
        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
            return None

        def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Any:
            return None

    adapter = SparkProcessor(Silent, "event", (), ANY)
    adapter.init(Handle())
    assert list(adapter.handleInputRows(("a",), iter(()), Times(0, 0))) == []
    assert list(adapter.handleExpiredTimer(("a",), Times(0, 9), Expiry(9))) == []


def test_errors_of_the_function_carry_its_name() -> None:
    class Broken(Echo):
        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
            yield Row(n=1)
            raise ValueError("no such thing")

    adapter = SparkProcessor(Broken, "event", (), ANY)
    adapter.init(Handle())
    with pytest.raises(UserFunctionError, match=r"Broken.handleInputRows.*no such thing"):
        list(adapter.handleInputRows(("a",), iter(()), Times(0, 0)))


INNER = TypeNames(("x", "y"), (ANY, ANY))
SHAPE = TypeNames(("a", "b"), (ANY, TypeNames(None, (INNER,))))


@pytest.mark.parametrize(
    "value",
    [
        Row(a=1, b=[Row(x=1, y=2)]),
        Row(b=[Row(y=2, x=1)], a=1),
        {"b": [{"y": 2, "x": 1}], "a": 1},
        (1, [(1, 2)]),
        SparkRow.of(("b", "a"), ([SparkRow.of(("y", "x"), (2, 1))], 1)),
    ],
)
def test_output_goes_by_names_and_without_names_by_place(value: Any) -> None:
    fitted = SHAPE.fit(value)
    assert fitted.asDict(True) == {"a": 1, "b": [{"x": 1, "y": 2}]}
    assert list(fitted.asDict()) == ["a", "b"]
    assert SHAPE.fit(Row(a=None, b=None)) == Row(a=None, b=None)


@pytest.mark.parametrize(
    "value",
    [Row(a=1), Row(a=1, b=[], c=2), Row(a=1, c=[]), (1,), 7, "ab", {"a": 1}, (1, [Row(x=1)])],
)
def test_output_with_other_fields_is_refused_where_spark_would_write_nulls(value: Any) -> None:
    with pytest.raises(UserFunctionError, match=r"expected the fields (a, b|x, y)"):
        SHAPE.fit(value)
