"""A record is late from when it was due: a stop is charged to all records that waited for it.

Two phases: the highest throughput, then lateness at a share of it.
"""

import pytest

from tidelog_bench.embedded.lateness import Handled, Lateness
from tidelog_bench.peers.phases import Phase, SteadyTask, two_phases

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


TASK = SteadyTask(
    variant="a system",
    directory="unused",
    seed=1,
    checkpoint_s=1.0,
    keys=100,
    memory_mib=32,
    materialize_s=1.0,
    warm_s=1.0,
    testing_s=4.0,
    running_s=4.0,
    share=0.5,
)


def test_what_arrives_in_the_running_phase_is_a_share_of_what_the_testing_phase_reached() -> None:
    asked: list[tuple[float | None, float]] = []

    def run(rate: float | None, seconds: float) -> Phase:
        asked.append((rate, seconds))
        if rate is None:
            # 100 keys in 10 s; then, after a second that does not count, 20 records a second.
            slow = [Handled.of(n / 10, [n]) for n in range(100)]
            return Phase(
                [*slow, *(Handled.of(10 + n / 20, [100 + n]) for n in range(100))], 100, [], 1
            )
        # At 10 a second; nothing from 13 s to 15 s.
        prompt = [Handled.of(n / 10, [n]) for n in (*range(130), *range(150, 200))]
        handled = sorted([*prompt, Handled.of(15.0, range(130, 150))])
        return Phase(handled, 100, [0.1, 0.3, 0.2], 70.4)

    found = two_phases(TASK, run)

    assert asked == [(None, 4.0), (pytest.approx(10), 4.0)]
    assert found["records_per_s"] == pytest.approx(20)
    assert found["late_max_ms"] == pytest.approx(2_000), "record 130 was due at 13 s"
    assert found["stop_ms"] == pytest.approx(2_100), "record 129 was handled at 12.9 s"
    assert found["late_p50_ms"] == pytest.approx(0, abs=1e-6)
    assert [found[f"checkpoint_{n}_ms"] for n in ("p50", "p99", "max")] == pytest.approx(
        [200, 300, 300]
    )
    assert (found["checkpoints"], found["peak_mb"]) == (3, 70)


def test_a_system_without_a_checkpoint_has_no_durations() -> None:
    steady = [Handled.of(n / 10, [n]) for n in range(200)]

    found = two_phases(TASK, lambda rate, seconds: Phase(steady, 100, [], 1))

    assert found["checkpoints"] == 0
    assert not any(name.startswith("checkpoint_") for name in found)
