"""Texts of times and sizes: what is shown is read back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.options.units import parse_duration, parse_size, show_duration

TIMES = [("250 ms", 0.25), ("250ms", 0.25), ("2 min", 120), ("2m", 120), ("0", 0), ("1d", 86_400)]
NO_TIMES = ["", "1", "s", "-1s", "1  s", "1 week", "1e3s", "1 S"]
SIZES = [("64 MiB", 64 << 20), ("64MiB", 64 << 20), ("20 kB", 20_000), ("200", 200)]
NO_SIZES = ["", "MiB", "-1", "64 mib", "64 Mb", "1e6", "64 MiB/s"]


@pytest.mark.parametrize(("text", "seconds"), [*TIMES, *((text, None) for text in NO_TIMES)])
def test_a_time_is_a_number_with_a_unit(text: str, seconds: float | None) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(("text", "count"), [*SIZES, *((text, None) for text in NO_SIZES)])
def test_a_size_is_a_number_that_may_have_a_unit(text: str, count: int | None) -> None:
    assert parse_size(text) == count


@given(st.floats(0, 1e9).map(lambda seconds: round(seconds, 6)))
def test_a_time_that_is_shown_is_read_back(seconds: float) -> None:
    read = parse_duration(show_duration(seconds))
    assert read is not None and read == pytest.approx(seconds, rel=1e-12)
