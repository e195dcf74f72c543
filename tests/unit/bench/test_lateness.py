"""A record is late from when it was due: a stop is charged to all records that waited for it."""

import pytest

from tidelog_bench.embedded.lateness import Handled, Lateness

RATE = 10.0


def promptly(numbers: range, delay_s: float = 0.0) -> list[Handled]:
    """A record at a time, each as late as this; the first record was due at 100 s."""
    return [Handled.of(100 + number / RATE + delay_s, [number]) for number in numbers]


def test_a_job_that_never_waits_is_late_by_its_delay() -> None:
    late = Lateness.of(promptly(range(100), 0.25), RATE, warm_up_s=1, start_s=100)

    assert [late.p50_ms, late.max_ms] == pytest.approx([250, 250])
    assert late.stop_ms == pytest.approx(100), "from one record to the next"


def test_records_that_waited_for_a_stop_are_late_though_they_were_read_after_it() -> None:
    # Nothing from 102 s to 107 s; then all that was due is handled at once.
    waited = Handled.of(107.0, range(20, 70))
    late = Lateness.of([*promptly(range(20)), waited, *promptly(range(70, 100))], RATE, 1)

    assert late.max_ms == pytest.approx(5_000), "record 20 was due at 102 s"
    assert late.stop_ms == pytest.approx(5_100), "record 19 was handled at 101.9 s"
    assert late.p50_ms == pytest.approx(0, abs=1e-6)


def test_what_was_due_within_the_warm_up_does_not_count() -> None:
    start = Handled.of(103.0, range(20))
    late = Lateness.of([start, *promptly(range(30, 100))], RATE, warm_up_s=3, start_s=100)

    assert late.max_ms == pytest.approx(0, abs=1e-6)
    assert late.stop_ms == pytest.approx(100)


def test_a_constant_delay_shows_only_where_the_start_is_known() -> None:
    handled = promptly(range(100), 0.25)

    assert Lateness.of(handled, RATE, 1).max_ms == pytest.approx(0, abs=1e-6)
    assert Lateness.of(handled, RATE, 1, start_s=100).p50_ms == pytest.approx(250)


def test_a_buffer_is_sampled_over_all_of_it() -> None:
    buffer = Handled.of(5.0, range(1_000, 3_048))

    assert (buffer.first, buffer.last, len(buffer.sample)) == (1_000, 3_047, 16)
    assert buffer.sample[-1] == 2_920


def test_a_job_that_handled_nothing_in_time_has_no_figures() -> None:
    with pytest.raises(ValueError, match="no record"):
        Lateness.of(promptly(range(20)), RATE, warm_up_s=3)
