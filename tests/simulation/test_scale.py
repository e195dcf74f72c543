"""The scale model: what staggering, shared segments and unaligned checkpoints are for."""

import json

from tests.simulator.scale.bursts import bursts
from tests.simulator.scale.pressure import durations
from tests.simulator.scale.segments import checkpoints
from tests.simulator.scale.shape import Shape
from tests.support.cli import simulate


def test_subtasks_share_segments_so_objects_grow_with_processes_alone() -> None:
    few = checkpoints(Shape(subtasks=100, processes=10, interval=2.0))
    many = checkpoints(Shape(subtasks=200, processes=10, interval=2.0))
    assert few.objects == many.objects < 100
    assert (few.objects_unpacked, many.objects_unpacked) == (1001, 2001)
    assert many.segment_bytes > 1.9 * few.segment_bytes


def test_staggered_materializations_have_no_peak() -> None:
    at_once, staggered = bursts(Shape(subtasks=100, processes=10))
    assert abs(at_once.mean - staggered.mean) < 1e-6 * staggered.mean
    assert staggered.peak < 1.3 * staggered.mean
    assert at_once.peak > 10 * at_once.mean


def test_ten_tasks_of_59_seconds_switch_at_60_seconds_by_the_start_time() -> None:
    found = {d.variant: d for d in durations(Shape(tasks=11, queued=59.0, stuck=0.0))}
    seconds = {name.split(":")[0]: d.seconds for name, d in found.items()}
    assert seconds["aligned"] == 590.0
    assert seconds["stage 1"] == 590.0, "no task alone takes longer than the timeout"
    assert seconds["stage 2"] == 60.0
    assert seconds["stage 3"] == 60.0


def test_a_barrier_that_waits_in_outputs_needs_the_third_stage() -> None:
    found = {d.variant.split(":")[0]: d for d in durations(Shape(tasks=11, queued=59.0, stuck=30))}
    assert found["stage 2"].seconds >= 300.0
    assert found["stage 3"].seconds == 60.0
    assert found["unaligned from the start"].seconds == 0.0
    assert found["aligned"].overtook == 0 < found["stage 3"].overtook


def test_the_command_prints_the_model_as_a_table_and_as_json() -> None:
    small = ("--subtasks", "20", "--processes", "4")
    done = simulate("scale", *small)
    assert done.exit_code == 0
    assert "stage 3: in outputs, too" in done.stdout
    document = json.loads(simulate("scale", *small, "--json").stdout)
    assert document["checkpoint"]["objects_unpacked"] == 201
    assert [b["variant"] for b in document["materializations"]] == ["at once", "staggered"]
    assert len(document["back_pressure"]) == 5


def test_a_job_that_cannot_be_is_refused() -> None:
    refused = simulate("scale", "--tasks", "2", "--subtasks", "1", "--processes", "9")
    assert refused.exit_code == 2
    assert "2 tasks of 1 on 9 processes" in refused.stderr
