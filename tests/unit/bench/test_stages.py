"""The stages of a run: a rate is kept in small steps, and what is behind it is known."""

import pytest

from tidelog_bench.embedded.meter import Mark
from tidelog_bench.embedded.stages import BUFFER, STEP_S, Stages
from tidelog_bench.embedded.workload import Words

WORDS = Words(["fill"], [str(number) for number in range(10_000)])


def stages(rate: float | None) -> Stages:
    made = Stages(WORDS, warm_s=1e9, seconds=1e9, rate=rate)
    assert made.read(0) == ["fill"]
    made.read(1)  # the stream begins now
    return made


@pytest.mark.parametrize("rate", [200.0, 1_000.0, 20_000.0])
def test_at_a_rate_a_buffer_holds_no_more_than_a_step_of_it(rate: float) -> None:
    buffer = stages(rate).read(1)
    assert buffer is not None
    assert len(buffer) == rate * STEP_S


def test_at_a_rate_what_is_not_due_yet_is_not_handed_out() -> None:
    limited = stages(100.0)
    assert limited.read(1_000) == []


def test_without_a_rate_buffers_are_full() -> None:
    assert stages(None).read(1) == WORDS.stream[:BUFFER]


def test_a_job_is_behind_by_the_time_its_missing_records_take() -> None:
    limited = stages(100.0)
    assert limited.filled is not None
    later = Mark(limited.filled.wall + 10.0, 0.0, 1 + 700)
    assert limited.behind_s(later) == pytest.approx(3.0)
    assert limited.behind_s(Mark(limited.filled.wall + 10.0, 0.0, 1 + 1_000)) == 0.0
    assert stages(None).behind_s(later) == 0.0


def test_without_a_warm_up_the_first_buffer_behind_the_fill_is_measured() -> None:
    at_once = Stages(WORDS, warm_s=0.0, seconds=1e9, records=1)
    assert at_once.read(0) == ["fill"]
    assert at_once.read(1) == WORDS.stream[:BUFFER]
    assert at_once.start is not None and at_once.start.records == 1
    assert at_once.read(1 + BUFFER) is None
    assert at_once.end is not None and at_once.end.records == 1 + BUFFER
