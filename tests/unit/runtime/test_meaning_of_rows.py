"""A job whose stored rows would mean another thing after a change is refused, and says what was."""

from collections.abc import Callable
from operator import itemgetter
from typing import Any

import pytest

from tests.support.pipelines import Outside, Portions, config, run
from tests.unit.runtime.test_changed_types import stopped
from tests.unit.runtime.test_reductions import Build, changed
from tidelog import (
    Count,
    Job,
    KeyedStream,
    Session,
    StatefulProcessor,
    StatefulProcessorHandle,
    StateSchemaError,
    Stream,
    Tumbling,
)
from tidelog.storage.memory import MemoryStore

value_of = itemgetter(2)
Pair = Callable[[KeyedStream, KeyedStream], Stream]


def reduced(function: str, *args: Any, windows: Any = None, **options: Any) -> Build:
    def build(keyed: KeyedStream) -> Stream:
        if windows is None:
            return getattr(keyed, function)(*args, name="reduced", **options)  # type: ignore[no-any-return]
        windowed = keyed.window(windows, name="reduced")
        return getattr(windowed, function)(*args, **options)  # type: ignore[no-any-return]

    return build


class Waits(StatefulProcessor):
    """What may set timers."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
        return ()


def waits(time_mode: Any) -> Build:
    return lambda keyed: keyed.transform_with_state(Waits, time_mode=time_mode, name="waits")


@pytest.mark.parametrize(
    ("before", "after", "was", "became"),
    [
        (reduced("sum", value_of), reduced("max", value_of), "reduction sum", "reduction max"),
        (reduced("sum", value_of), reduced("count"), "reduction sum", "reduction count"),
        *[
            (
                reduced("min", value_of, windows=windows),
                reduced("max", value_of, windows=windows),
                "reduction min",
                "reduction max",
            )
            for windows in (Tumbling(1_000), Session(1_000), Count(7))
        ],
        (
            reduced("records", lambda *window: window, windows=Count(7)),
            reduced("top", 7, by=value_of, windows=Count(7)),
            "reduction records",
            "reduction top 7",
        ),
        (
            reduced("top", 5, by=value_of),
            reduced("top", 2, by=value_of),
            "reduction top 5",
            "reduction top 2",
        ),
        (waits("event"), waits("processing"), "time mode event", "time mode processing"),
        (waits("processing"), waits("none"), "time mode processing", "time mode none"),
    ],
)
def test_rows_are_not_taken_for_something_else(
    before: Build, after: Build, was: str, became: str
) -> None:
    with pytest.raises(StateSchemaError) as raised:
        changed(before, after)
    assert raised.value.expected == f"{was}, as the checkpoint has it"
    assert raised.value.found == became


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (reduced("sum", value_of), reduced("aggregate", value_of, lambda a, b: a + b)),
        (reduced("aggregate", value_of, lambda a, b: a + b), reduced("sum", value_of)),
        (reduced("sum", value_of), reduced("sum", value_of)),
    ],
    ids=["own function", "library's function", "the same"],
)
def test_what_a_program_does_itself_goes_on_with_any_rows(before: Build, after: Build) -> None:
    totals = {f"k{k}": sum(n for n in range(100) if n % 3 == k) for k in range(3)}
    assert dict(changed(before, after)) == totals


def test_a_processor_gets_timers_where_it_had_none() -> None:
    assert changed(waits("none"), waits("event")) == []


def ids(**options: Any) -> Build:
    def build(keyed: KeyedStream) -> Stream:
        everything = keyed.key_by(lambda _: "all")
        return everything.deduplicate(value_of, ttl="1h", name="ids", **options)

    return build


@pytest.mark.parametrize(
    ("first", "then", "declared", "refused"),
    [
        (int, str, int | str, "str"),
        (str, int, int | str, "int"),
        (int, float, int | float, "float"),
        (int, lambda n: (n,), int | tuple, "tuple[int]"),
    ],
)
def test_an_id_of_another_type_does_not_pass_again(
    first: Any, then: Any, declared: Any, refused: str
) -> None:
    values = {"first": lambda n: first(n % 10), "then": lambda n: then(n % 10)}
    passed = changed(ids(), ids(), first=values["first"], then=values["first"])
    assert len(passed) == 10
    with pytest.raises(StateSchemaError, match="id_type=") as raised:
        changed(ids(), ids(), **values)
    assert raised.value.found == refused
    # They pass again where the program says that it means both.
    assert len(changed(ids(), ids(id_type=declared), **values)) == 20


def paired(build: Pair, *, filtered: bool = False) -> Callable[[Outside], Job]:
    left = Portions({"only": [("k", n * 40, f"left {n}") for n in range(60)]}, portion=2, pause=0.5)
    right = Portions(
        {"only": [("k", n * 40 + 1, f"right {n}") for n in range(60)]}, portion=2, pause=0.5
    )

    def job(sink: Outside) -> Job:
        made = Job("pairs")
        streams = [
            made.source(source, name=name).event_time(itemgetter(1), max_delay_ms=500)
            for name, source in (("orders", left), ("payments", right))
        ]
        if filtered:
            streams = [stream.filter(lambda _: True) for stream in streams]
        build(*(stream.key_by(itemgetter(0)) for stream in streams)).sink(sink)
        return made

    return job


def joined(one: KeyedStream, other: KeyedStream) -> Stream:
    return one.join(other, (-80, 80), name="join")


def enriched(one: KeyedStream, other: KeyedStream) -> Stream:
    return one.enrich(other, lambda record, row: (record, row), name="join")


def newest(one: KeyedStream, other: KeyedStream) -> Stream:
    return one.enrich(other, lambda r, row: (r, row), time="processing", name="join")


@pytest.mark.parametrize("build", [joined, enriched, newest])
def test_the_streams_of_a_join_are_not_swapped(build: Pair) -> None:
    store, sink = MemoryStore(), Outside()
    stopped(paired(build)(sink), store, parallelism=1)
    with pytest.raises(StateSchemaError, match="the two streams swapped") as raised:
        run(paired(lambda left, right: build(right, left), filtered=True)(sink), store, config())
    assert "orders" in raised.value.expected and "payments" in raised.value.expected
    # Operators in front of it may come.
    run(paired(build, filtered=True)(sink), store, config(parallelism=3))
    assert sink.records
    assert all(pair[0][2].startswith("left") for pair in sink.records)
    assert all(pair[1] is None or pair[1][2].startswith("right") for pair in sink.records)


def test_what_is_known_to_be_right_goes_on_all_the_same() -> None:
    store, sink = MemoryStore(), Outside()
    stopped(paired(joined)(sink), store, parallelism=1)
    swapped = paired(lambda left, right: joined(right, left))
    run(swapped(sink), store, config(allow_non_restored_state=("join/$meaning",)))
    assert {pair[0][2].partition(" ")[0] for pair in sink.records} == {"left", "right"}
