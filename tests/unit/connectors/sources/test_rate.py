"""The rate source: records when they are due, each number once, the same ones after a restart."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.clock import VirtualClock
from tests.unit.connectors.sources.reading import read_all
from tidelog.connectors.program import Rate
from tidelog.errors import ConfigError


@given(st.integers(1, 5), st.integers(0, 20_000), st.integers(-5, 5))
def test_the_splits_produce_each_number_once(splits: int, limit: int, start: int) -> None:
    source = Rate(None, splits=splits, limit=limit, start=start)
    assert len(list(source.discover())) == splits
    assert sorted(read_all(source)) == list(range(start, start + limit))


def test_records_are_made_from_their_numbers() -> None:
    assert read_all(Rate(None, limit=3, make=lambda n: f"record {n}")) == [
        "record 0",
        "record 1",
        "record 2",
    ]


async def test_records_come_when_they_are_due() -> None:
    clock = VirtualClock(auto=False)
    reader = Rate(4, clock=clock).open("0", None)
    assert reader.read() == []
    assert reader.delay_s == 0.25
    await clock.advance(1)
    assert reader.read() == [0, 1, 2, 3]
    await clock.advance(0.125)
    assert reader.read() == []
    assert reader.delay_s == 0.125
    await clock.advance(100)
    assert reader.read() == list(range(4, 404))


async def test_the_rate_is_that_of_all_splits_together() -> None:
    clock = VirtualClock(auto=False)
    source = Rate(8, splits=4, clock=clock)
    readers = [source.open(split, None) for split in source.discover()]
    await clock.advance(1)
    assert [reader.read() for reader in readers] == [[0, 4], [1, 5], [2, 6], [3, 7]]


async def test_a_restored_split_goes_on_at_the_rate() -> None:
    clock = VirtualClock(auto=False)
    reader = Rate(10, limit=105, clock=clock).open("0", 100)
    assert reader.read() == []
    await clock.advance(0.25)
    assert reader.read() == [100, 101]
    await clock.advance(60)
    assert reader.read() == [102, 103, 104]
    assert reader.read() is None


def test_one_read_is_bounded_and_an_endless_split_goes_on() -> None:
    reader = Rate(None).open("0", 10**12)
    first, second = reader.read(), reader.read()
    assert first is not None
    assert second is not None
    assert (first[0], second[0]) == (10**12, 10**12 + len(first))
    assert 1000 < len(first) < 10_000


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"records_per_s": 0}, "records_per_s; expected more than 0; found 0"),
        ({"records_per_s": 1, "splits": 0}, "splits; expected at least 1; found 0"),
        ({"records_per_s": 1, "limit": -1}, "limit; expected at least 0; found -1"),
    ],
)
def test_numbers_out_of_range_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Rate(**settings)
