"""Whatever is put into state is what comes out of it: equal, and of the same type inside and out,
in memory and behind flushes, restores, rescales and barriers that overtake.
"""

import asyncio
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Literal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidelog
from tests.property.profiles import looking
from tests.support.depth import in_pairs
from tests.support.pipelines import Outside, acted_on, config, effects, run
from tests.support.values import VALUES, Colour, Point, form_of
from tidelog import (
    FlushConfig,
    Job,
    KeyedStream,
    ListState,
    MapState,
    Row,
    Sliding,
    Source,
    SplitReader,
    Stream,
    Tumbling,
    UnalignedConfig,
    ValueState,
)
from tidelog.catalog.clone import Clone
from tidelog.checkpoint.manifest import SavepointFormat
from tidelog.errors import StateSchemaError, UserFunctionError
from tidelog.storage.memory import MemoryStore

KEYS = ("a", "b", "c")


class Drawn(Source):
    """Reads records one by one in two splits, with positions of a type of its own.

    Breaks off when it has handed out `left` of them.
    """

    def __init__(self, records: Sequence[Any], *, pause: float = 0.3) -> None:
        self.records = records
        self.pause = pause
        self.left: int | None = None
        self.opened: list[Any] = []

    def discover(self) -> list[str]:
        return ["even", "odd"]

    def open(self, split: str, position: Any) -> SplitReader:
        if position is not None:
            self.opened.append(position)
        return _DrawnReader(self, self.records[split == "odd" :: 2], position)


class _DrawnReader(SplitReader):
    def __init__(self, source: Drawn, records: Sequence[Any], position: Any) -> None:
        self._source = source
        self._records = records
        self.position = position or Point(0, {"read": frozenset()})
        self.delay_s = source.pause
        self._paused = False

    def read(self) -> list[Any] | None:
        self._paused = not self._paused
        if self._paused:
            return []
        at = self.position.x
        if at == len(self._records):
            return None
        if self._source.left is not None:
            self._source.left -= 1
            if self._source.left < 0:
                raise UserFunctionError("the source", found="the break", action="start again")
        self.position = Point(at + 1, {"read": frozenset({at})})
        return [self._records[at]]


def appended(before: tuple[Any, ...], value: tuple[Any, ...]) -> tuple[Any, ...]:
    return before + value


def numbered(record: Any) -> tuple[Any, ...]:
    """What the aggregates keep of a record: a tuple with one element."""
    return (record[1:],)


def of_first_window(key: Any, start: int, records: list[Any]) -> Any:
    return (key, tuple(record[1:] for record in records)) if start == 0 else None


def learn(rule: Any, known: Any) -> None:
    known[rule[0], rule[1]] = rule[2]


def known_so_far(record: Any, known: Any) -> Iterator[Any]:
    yield from ((key, ((number, value),)) for (key, number), value in known.items())


def of_first(windows: Stream) -> Stream:
    return windows.filter(lambda w: w[1] == 0).map(lambda w: (w[0], w[2]))


Build = Callable[[KeyedStream, Stream], Stream]
STATES: dict[str, Build] = {
    "aggregate": lambda keyed, _: keyed.aggregate(numbered, appended, name="aggregate"),
    "tumbling": lambda keyed, _: of_first(
        keyed.window(Tumbling(10_000), name="tumbling").aggregate(numbered, appended)
    ),
    "sliding": lambda keyed, _: of_first(
        keyed.window(Sliding(10_000, 5_000), name="sliding").aggregate(numbered, appended)
    ),
    "records": lambda keyed, _: keyed.window(Tumbling(10_000), name="records").records(
        of_first_window
    ),
    "sliding-records": lambda keyed, _: keyed.window(
        Sliding(10_000, 5_000), name="sliding-records"
    ).records(of_first_window),
    "rules": lambda _, records: records._job.source(Late(), name="late").with_broadcast(
        records, on_rule=learn, on_record=known_so_far, name="rules"
    ),
}
SINKS = tuple(STATES)


def values_in_every_state(
    source: Source, sinks: dict[str, Outside], states: Iterable[str] = SINKS
) -> Job:
    """Records are (key, number, value); every sink gets the values of each key, in their order."""
    job = Job("values")
    records = job.source(source).map(lambda record: record)
    keyed = records.event_time(lambda record: record[1]).key_by(lambda record: record[0])
    for name in states:
        found = STATES[name](keyed, records).filter(lambda found: found is not None)
        found.sink(sinks[name], name=f"to-{name}")
    return job


class Late(Source):
    """One record, long after all others."""

    def discover(self) -> list[str]:
        return ["late"]

    def open(self, split: str, position: Any) -> SplitReader:
        return _LateReader(position or 0)


class _LateReader(SplitReader):
    delay_s = 0.5

    def __init__(self, position: int) -> None:
        self.position = position

    def read(self) -> list[Any] | None:
        self.position += 1
        return ["now"] if self.position == 60 else [] if self.position < 60 else None


@looking(12)
@given(
    values=st.lists(VALUES, min_size=4, max_size=12),
    breaks=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 3)), max_size=3),
    rows=st.sampled_from([1, 100_000]),
    unaligned=st.sampled_from(["off", "always"]),
)
def test_what_is_put_into_a_job_comes_out_of_it(
    values: list[Any], breaks: list[tuple[int, int]], rows: int, unaligned: Literal["off", "always"]
) -> None:
    records = [(KEYS[at % 3], at, value) for at, value in enumerate(values)]
    source, sinks = Drawn(records), {name: Outside() for name in SINKS}
    store = MemoryStore("memory://values")

    def run_on(parallelism: int) -> None:
        settings = config(
            parallelism=parallelism,
            flush=FlushConfig(rows=rows),
            unaligned=UnalignedConfig(mode=unaligned),
        )
        run(values_in_every_state(source, sinks), store, settings)

    for left, parallelism in breaks:
        source.left = left
        with suppress(UserFunctionError):
            run_on(parallelism)
    source.left = None
    run_on(2)
    expected: dict[Any, set[str]] = defaultdict(set)
    for key, number, value in records:
        expected[key].add(repr(form_of((number, value))))
    for name in SINKS:
        found: dict[Any, set[str]] = defaultdict(set)
        for key, held in sinks[name].records:
            found[key].update(repr(form_of(each)) for each in held)
        assert found == expected, name
    assert all(type(position) is Point for position in source.opened)
    assert all(type(position.y["read"]) is frozenset for position in source.opened)


KEY = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(1 << 63), (1 << 64) - 1),
        st.floats(allow_nan=False).map(lambda number: number + 0.0),
        st.text(max_size=5),
        st.binary(max_size=5),
    ),
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=4,
)


def dict_form(held: dict[Any, Any]) -> list[str]:
    """As `form_of`, whatever the order of the keys."""
    return sorted(repr(form_of(item)) for item in held.items())


MOMENTS = st.datetimes(timezones=st.sampled_from([None, UTC])).map(lambda at: at.replace(fold=0))
OF_STATES = {
    "truth": (bool, st.booleans()),
    "whole": (int, st.integers(-(1 << 63), (1 << 63) - 1)),
    "number": (float, st.floats()),
    "text": (str, st.text(max_size=5)),
    "data": (bytes, st.binary(max_size=5)),
    "day": (date, st.dates()),
    "moment": (datetime, MOMENTS),
    "sum": (Decimal, st.decimals(allow_nan=False)),
    "texts": (list[str], st.lists(st.text(max_size=3), max_size=3)),
    "sums": (
        dict[str, Decimal],
        st.dictionaries(st.text(max_size=3), st.decimals(allow_nan=False)),
    ),
}


@looking(12)
@given(
    key=KEY,
    held=st.fixed_dictionaries({name: drawn for name, (_, drawn) in OF_STATES.items()}),
    positions=st.dictionaries(KEY, VALUES, max_size=3),
)
def test_what_a_program_puts_into_its_states_comes_out_of_them(
    key: Any, held: dict[str, Any], positions: dict[Any, Any]
) -> None:
    states: dict[str, Any] = {name: ValueState(kind) for name, (kind, _) in OF_STATES.items()}
    states |= {"entries": MapState(str, Decimal), "days": ListState(date)}

    def values_of(db: tidelog.Database) -> str:
        of_key = db.key(key)
        found = {name: getattr(of_key, name).get() for name in held}
        entries, days = dict(of_key.entries.items()), of_key.days.get()
        keys = [each for each, _ in db.scan("whole")]
        return repr(form_of((found, entries, days, keys)))

    with tempfile.TemporaryDirectory() as folder:
        url = f"{folder}/store"
        with tidelog.open(url, state=states) as db:
            of_key = db.key(key)
            for name, value in held.items():
                getattr(of_key, name).set(value)
            of_key.entries.set("sum", held["sum"])
            of_key.days.append(held["day"])
            for partition, position in positions.items():
                db.advance(partition, position)
            expected = repr(form_of((held, {"sum": held["sum"]}, [held["day"]], [key])))
            assert values_of(db) == expected
            db.checkpoint()
            assert values_of(db) == expected
        with tidelog.open(url, state=states) as db:
            assert values_of(db) == expected
            assert dict_form(db.position or {}) == dict_form(positions)


class Unknown:
    """A plain class, which state does not keep."""


UNKNOWN = {"itself": Unknown(), "listed": [Unknown()], "deep": {"a": {"b": Unknown()}}, "code": len}


@in_pairs(value=UNKNOWN, name=SINKS, later=[0, 5])
def test_a_value_of_a_type_that_is_not_kept_is_refused_before_anything_is_made_of_it(
    value: Any, name: str, later: int
) -> None:
    sinks = {each: Outside() for each in SINKS}
    source = Drawn([*[("c", n, 1) for n in range(later)], ("a", 8, value), ("b", 9, value)])
    job = values_in_every_state(source, sinks, [name])
    with pytest.raises(StateSchemaError, match=r"found .*(Unknown|function).*dataclass") as refused:
        run(job, MemoryStore("memory://refused"))
    assert refused.value.retry_safe
    assert all(not sink.records for sink in sinks.values())


ONE_OF_EACH: list[Any] = [
    *((1, (2,)), {3}, frozenset({4}), {("a", 1): Decimal("1.20")}, bytearray(b"x"), 2**70),
    *(date(2026, 1, 2), datetime(2026, 1, 2, tzinfo=UTC), timedelta(days=-1), Colour.BLUE),
    *(Point(1, Colour.RED), Row(a=1, b=[Row(c=2)]), UUID(int=7), float("nan"), "\ud800"),
]


@pytest.mark.parametrize("way", ["native", "canonical", "clone"])
def test_values_of_every_type_go_through_savepoints_and_clones(way: str) -> None:
    records = [(KEYS[at % 3], at, value) for at, value in enumerate(ONE_OF_EACH)]
    source, sinks = Drawn(records), {name: Outside() for name in SINKS}
    store, other = MemoryStore("memory://values"), MemoryStore("memory://clone")
    form: SavepointFormat = "canonical" if way == "canonical" else "native"
    acted_on(values_in_every_state(source, sinks), store, lambda r: r.stop("halt", form), at=1.6)
    if way == "clone":
        asyncio.run(Clone(store, other, effects(), keep_transactions=True).run("halt"))
    assert source.opened == [] and sinks["aggregate"].records == []
    run(
        values_in_every_state(source, sinks),
        other if way == "clone" else store,
        config(parallelism=3),
    )
    assert source.opened, "it went on from the middle"
    expected = {key: [form_of((n, v)) for k, n, v in records if k == key] for key in KEYS}
    for name in SINKS:
        found: dict[Any, dict[int, Any]] = defaultdict(dict)
        for key, held in sinks[name].records:
            found[key].update({number: form_of((number, value)) for number, value in held})
        assert {key: [held[n] for n in sorted(held)] for key, held in found.items()} == expected
