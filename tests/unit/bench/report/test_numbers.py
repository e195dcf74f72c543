"""Numbers and settings as people read them."""

import pytest

from tidelog_bench.report.numbers import number, setting, span, times


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (1, "1"),
        (7.0, "7"),
        (12.345, "12.3"),
        (0.12345, "0.123"),
        (999.96, "1,000"),
        (1234567.8, "1,234,568"),
        (-0.5, "-0.5"),
        (1e-12, "1e-12"),
        (float("inf"), "inf"),
    ],
)
def test_a_number_keeps_three_significant_digits(value: float, text: str) -> None:
    assert number(value) == text


def test_a_span_is_shown_of_values_that_differ_only() -> None:
    assert span({"median": 2.0, "min": 1.0, "max": 3.0, "n": 2}) == "1\N{EN DASH}3"
    assert span({"median": 2.0, "min": 2.0, "max": 2.0, "n": 1}) == ""
    assert times(0.1234) == "0.123x"


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("latency_ms", 30.0, "latency 30 ms"),
        ("mb_per_s", 50, "50 MB/s"),
        ("read_mb_per_s", 50, "read 50 MB/s"),
        ("records_per_s", 60_000, "records 60,000 /s"),
        ("seconds", 5, "seconds 5"),
        ("key_bytes", 16, "key 16 bytes"),
        ("job", "word-count", "job word-count"),
        ("filled", True, "filled yes"),
        ("link", None, "no link"),
    ],
)
def test_a_setting_is_written_with_its_unit(name: str, value: object, text: str) -> None:
    assert setting(name, value) == text  # type: ignore[arg-type]
