"""What the page makes of a running job's status."""

import asyncio
from dataclasses import asdict
from typing import Any

import msgspec
import pytest

from tests.support.jobs import config, every_kind, virtual_effects
from tests.support.watching import done
from tidelog.errors import ControlError
from tidelog.runtime.runner import JobRunner
from tidelog.runtime.status.observe import status_of
from tidelog.storage.memory import MemoryStore
from tidelog.ui.live import Sample, completed_points, figures_of, live_part


def operator(**changes: Any) -> dict[str, Any]:
    return {"id": "count", "parallelism": 2, **changes}


def sample(at_s: float, *operators: dict[str, Any], **status: Any) -> Sample:
    fields = {"job": "j", "at_s": at_s, "generation": 1, "operators": operators, **status}
    return Sample(int(at_s * 1000), figures_of(done(fields)))


def test_rates_are_those_between_two_looks_over_all_subtasks() -> None:
    samples = [
        sample(10, operator(records_in=100, busy_s=1.0, backpressured_s=2.0, late_records=1)),
        sample(12, operator(records_in=500, busy_s=2.0, backpressured_s=5.0, late_records=4)),
    ]
    [series] = live_part(done({"job": "j"}), samples, samples).operators
    assert series.id == "count"
    assert series.records_per_s == (None, 200.0)
    assert series.busy == (None, 0.25)
    assert series.backpressured == (None, 0.75)
    assert series.late_per_s == (None, 1.5)


@pytest.mark.parametrize(
    "later",
    [
        sample(12, operator(records_in=500), generation=2),
        sample(12, operator(records_in=99)),
        sample(12, {"id": "other", "records_in": 500}),
        sample(10, operator(records_in=500)),
    ],
    ids=["another incarnation", "a counter went back", "it is gone", "no time passed"],
)
def test_there_is_no_rate_where_there_is_nothing_to_go_by(later: Sample) -> None:
    samples = [sample(10, operator(records_in=100)), later]
    part = live_part(done({"job": "j"}), samples, samples)
    assert part.operators[0].records_per_s == (None, None)
    assert part.now[0].records_per_s is None


def test_event_time_is_behind_the_clock_unless_it_has_not_begun_or_is_over() -> None:
    marks = [None, 9_000, -(1 << 63), (1 << 63) - 1]
    samples = [sample(10, operator(watermark_ms=mark)) for mark in marks]
    [series] = live_part(done({"job": "j"}), samples, samples).operators
    assert series.behind_s == (None, 1.0, None, None)


def test_tables_of_a_job_that_restores_are_not_known_to_be_empty() -> None:
    state = {"table_bytes": 0, "log_bytes": 0, "materialized_bytes": 0}
    samples = [
        sample(1, phase="restoring", state=state),
        sample(2, phase="running", state=state),
    ]
    part = live_part(done({"job": "j"}), samples, samples)
    assert part.state.table_bytes == (None, 0)


def test_now_is_what_became_of_the_last_look_by_subtask() -> None:
    def look(at_s: float, *busy_s: float) -> Sample:
        tasks = [
            {"subtask": at, "busy_s": busy, "backpressured_s": busy / 2, "input_bytes": 7 * at}
            for at, busy in enumerate(busy_s)
        ]
        return sample(at_s, operator(records_in=100 * at_s, tasks=tasks))

    looks = [look(10, 1.0, 1.0), look(12, 1.5, 3.0)]
    [now] = live_part(done({"job": "j"}), looks, [look(0, 0.0, 0.0)]).now
    assert (now.id, now.records_per_s) == ("count", 100.0)
    shares = [(task.subtask, task.busy, task.backpressured, task.input_bytes) for task in now.tasks]
    assert shares == [(0, 0.25, 0.125, 0), (1, 1.0, 0.5, 7)]
    [alone] = live_part(done({"job": "j"}), looks[1:], []).now
    assert alone.records_per_s is None and [task.busy for task in alone.tasks] == [None, None]
    assert looks[0].to_keep().figures.operators[0].tasks == ()


def test_a_real_status_is_understood_to_its_last_field() -> None:
    runner = JobRunner(every_kind(), MemoryStore(), config(), virtual_effects())
    asyncio.run(runner.run())
    assert runner.incarnation is not None
    recent = runner.incarnation.driver.metrics.recent
    answer = done(msgspec.to_builtins(status_of(runner)), tuple(msgspec.to_builtins(list(recent))))
    figures = figures_of(answer)
    assert figures.job == "every-kind" and figures.operators[0].records_in > 0
    assert figures.memory_bytes == status_of(runner).memory.used_bytes
    assert figures.uploads.queued_bytes == 0
    assert [task.subtask for task in figures.operators[0].tasks] == [0, 1]
    points = completed_points(answer)
    assert [point.slot for point in points] == [each.slot for each in recent]
    for point, each in zip(points, recent, strict=True):
        assert point.seconds == each.seconds and point.phases is not None
        assert msgspec.to_builtins(point.phases) == asdict(each.phases)
        assert point.new_log_bytes == each.sizes.log_incremental_bytes


def test_fields_of_other_releases_are_ignored_and_missing_ones_are_not_known() -> None:
    figures = figures_of(done({"job": "j", "operators": [{"id": "a", "new": 1}], "newer": {}}))
    assert figures.operators[0].watermark_ms is None and figures.state.log_bytes is None


@pytest.mark.parametrize("status", [{}, {"job": "j", "operators": "many"}])
def test_an_answer_that_makes_no_sense_is_an_error(status: dict[str, Any]) -> None:
    with pytest.raises(ControlError, match="use the release of tidelog that the job runs"):
        figures_of(done(status))
