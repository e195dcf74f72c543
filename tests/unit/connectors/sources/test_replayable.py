"""Python iterables as sources: read again from a position, with the same records."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.connectors.sources.reading import check_every_restart, drain, read_all
from tidelog.connectors.program import Replayable
from tidelog.errors import ConfigError, RestoreError


@given(st.integers(0, 5000), st.sampled_from([list, tuple, iter]))
def test_a_restart_from_every_position_gives_the_remaining_records(size: int, kind: Any) -> None:
    source = Replayable(lambda: kind(range(size)))
    check_every_restart(source, "records", list(range(size)))


@pytest.mark.parametrize("records", [[1, 2, 3], (1, 2, 3), range(1, 4), lambda: iter([1, 2, 3])])
def test_sequences_and_factories_are_sources(records: Any) -> None:
    source = Replayable(records)
    assert read_all(source) == read_all(source) == [1, 2, 3]


def test_a_mapping_gives_several_splits_in_its_order() -> None:
    source = Replayable({"z": [1, 2], "a": lambda: (n for n in [3])})
    assert source.discover() == ["z", "a"]
    assert read_all(source) == [1, 2, 3]
    assert drain(source.open("z", 1)) == [2]


@pytest.mark.parametrize("records", [iter([1]), {1, 2}, 5])
def test_what_cannot_be_read_twice_in_the_same_order_is_refused(records: Any) -> None:
    with pytest.raises(ConfigError, match=f"split 'records'; .*found {type(records).__name__}"):
        Replayable(records)


def test_an_iterable_that_became_shorter_fails_the_restore() -> None:
    with pytest.raises(RestoreError, match=r"at least 4 records.*found 3"):
        Replayable([1, 2, 3]).open("records", 4)


def test_a_split_that_is_gone_fails_the_restore() -> None:
    with pytest.raises(RestoreError, match=r"split 'b'; expected one of \['a'\]"):
        Replayable({"a": [1]}).open("b", None)


def test_closing_a_reader_closes_its_generator() -> None:
    closed = []

    def records() -> Iterator[int]:
        try:
            yield from range(5000)
        finally:
            closed.append(True)

    reader = Replayable(records).open("records", None)
    reader.read()
    reader.close()
    assert closed == [True]


def test_an_exception_of_the_iterable_passes_through() -> None:
    def records() -> Iterator[int]:
        yield 1
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        read_all(Replayable(records))


def test_blocking_iterables_say_so() -> None:
    assert (Replayable([]).blocking, Replayable([], blocking=True).blocking) == (False, True)
