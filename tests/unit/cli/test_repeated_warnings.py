"""Equal warnings within two seconds are written once, and then how many more there were."""

import logging

from tidelog.cli.logs import Repetitions


def warning(text: str, at_s: float, level: int = logging.WARNING) -> logging.LogRecord:
    record = logging.LogRecord("tidelog.storage", level, "", 0, text, None, None)
    record.created = at_s
    return record


def written(*records: logging.LogRecord) -> list[tuple[str, int]]:
    """The texts that are written, each with how many more there were."""
    repetitions = Repetitions()
    output: list[logging.LogRecord] = []
    for record in records:
        output += repetitions.admit(record)
    output += repetitions.rest()
    return [(record.getMessage(), getattr(record, "repeated", 0)) for record in output]


def test_five_equal_warnings_become_one_and_a_count() -> None:
    assert written(*[warning("full", 10 + n / 10) for n in range(5)]) == [("full", 0), ("full", 4)]


def test_other_warnings_between_them_are_written_as_they_come() -> None:
    records = warning("full", 10), warning("slow", 10.1), warning("full", 10.2), warning("slow", 11)
    assert written(*records) == [("full", 0), ("slow", 0), ("full", 1), ("slow", 1)]


def test_a_warning_that_comes_later_is_written_after_the_count_of_those_before() -> None:
    records = warning("full", 10), warning("full", 11), warning("full", 12.5)
    assert written(*records) == [("full", 0), ("full", 1), ("full", 0)]


def test_what_is_no_warning_is_always_written() -> None:
    records = [warning("done", 10, logging.INFO)] * 3
    assert written(*records) == [("done", 0)] * 3
