"""The measurement behind replay: a job really fails, restarts and catches up."""

import asyncio
from pathlib import Path

import pytest

from tidelog.errors import UserFunctionError
from tidelog.runtime.graph import Job
from tidelog_bench.embedded.jobs import word_count
from tidelog_bench.embedded.restarting import FailingStages, InjectedFailure, Restart, restart
from tidelog_bench.embedded.run import RunSpec
from tidelog_bench.embedded.running import BuildJob
from tidelog_bench.embedded.stages import Stages
from tidelog_bench.embedded.workload import Words, Workload
from tidelog_bench.experiments import replay
from tidelog_bench.measurement import Reading, Setting, Size, Trial
from tidelog_bench.store.latency import LatencyProfile

RATE = 3_000.0
BUFFER = 60
"""What comes in 20 ms."""
SPEC = RunSpec(
    Workload(2_000, 16, draws=20_000), checkpoint_s=0.1, rate=RATE, link=LatencyProfile(1.0, 100.0)
)


def counting(stages: Stages) -> Job:
    return word_count(stages.read)


def restarted(directory: Path, build: BuildJob = counting, limit_s: float = 60.0) -> Restart:
    return asyncio.run(restart(SPEC, build, directory, warm_s=0.3, limit_s=limit_s, rest_s=0.0))


def test_a_job_goes_on_at_its_newest_checkpoint_and_handles_what_came_meanwhile(
    tmp_path: Path,
) -> None:
    found = restarted(tmp_path)
    stages, first, second = found.stages, found.first, found.second
    assert stages.failed and stages.resumed and stages.caught_up and found.up
    assert first.incarnation is not None and second.incarnation is not None
    restored = second.incarnation.plan.checkpoint
    assert restored is not None and restored.slot == first.incarnation.driver.next_slot - 1
    again = stages.failed.records - stages.resumed.records
    assert again >= 0 and again % BUFFER == 0
    # What was due while the job was down has been handled when it has caught up.
    assert stages.caught_up.records > stages.failed.records
    assert stages.behind_s(stages.caught_up) == 0
    moments = [stages.failed.wall, found.stopped, found.up.wall, stages.caught_up.wall]
    assert moments == sorted(moments)
    assert 0 <= found.moment < 1
    # A source hands out 20 ms at a time, so a job may be that much ahead.
    most = max(lag for _, lag in stages.lag_s(stages.failed.wall))
    assert most >= found.up.wall - found.stopped - BUFFER / RATE - 1e-6


def test_a_job_that_fails_by_itself_fails_the_run(tmp_path: Path) -> None:
    def build(stages: Stages) -> Job:
        def read(position: int) -> list[str] | None:
            if position > 2_000:
                raise ZeroDivisionError
            return stages.read(position)

        return word_count(read)

    with pytest.raises(UserFunctionError, match="ZeroDivisionError"):
        restarted(tmp_path, build)


def test_a_job_that_is_given_no_time_to_catch_up_has_still_been_restarted(tmp_path: Path) -> None:
    found = restarted(tmp_path, limit_s=0.0)
    assert found.up is not None and found.stages.resumed is not None


def test_an_armed_source_fails_once_and_knows_where_it_goes_on() -> None:
    stages = FailingStages(Words(["a"] * 10, ["b"] * 1_000), rate=1e-9)
    assert stages.read(0) == ["a"] * 10
    assert stages.read(10) == ["b"]  # the first one is due at once
    assert stages.read(11) == []
    stages.arm()
    with pytest.raises(InjectedFailure):
        stages.read(11)
    assert stages.caught_up is None
    assert stages.read(10) == ["b"]
    assert stages.resumed is not None and stages.resumed.records == 10
    assert stages.caught_up is None
    assert stages.read(11) == []
    assert stages.caught_up is not None and stages.caught_up.records == 11


SMALL: dict[str, Setting] = {
    "latency_ms": 1.0,
    "mb_per_s": 100.0,
    "checkpoint_s": 0.1,
    "rare_checkpoint_s": 0.4,
    "warm_s": 0.3,
    "limit_s": 60.0,
    "job": "wordcount",
    "key_bytes": 200,
    "keys": 2_000,
    "rate": RATE,
}
VARIANTS = ("on", "off", "off-rare")


@pytest.fixture(scope="module")
def readings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Reading]:
    """What one pair measures: a reading by the name of each variant."""
    return {
        variant: replay.measure_replay(Trial(SMALL, variant, 7, tmp_path_factory.mktemp(variant)))
        for variant in VARIANTS
    }


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_reading_says_what_was_done_again_and_when_it_was_over(
    readings: dict[str, Reading], variant: str
) -> None:
    found = readings[variant]
    figures = found.figures
    assert figures["reprocessed_mb"] == figures["reprocessed_records"] * 200 / 1e6
    assert figures["reprocessed_s"] == figures["reprocessed_records"] / RATE
    assert 0 < figures["stopped_s"] < figures["down_s"] < figures["caught_up_s"]
    assert figures["restore_s"] < figures["down_s"]
    # At the first read behind the failure both the downtime and what is done again are missing.
    least = figures["down_s"] - figures["stopped_s"] + figures["reprocessed_s"]
    assert figures["behind_peak_s"] >= least - BUFFER / RATE - 1e-6
    assert found.notes["caught_up"] is True
    assert variant == "on" or figures["replayed_changes"] == 0
    assert figures["downloaded_mb"] > 2_000 * 200 * 0.5 / 1e6


def test_the_moment_of_the_failure_is_the_same_for_all_variants_of_a_pair(
    readings: dict[str, Reading],
) -> None:
    assert len({found.notes["moment"] for found in readings.values()}) == 1


@pytest.mark.parametrize("size", Size)
def test_the_rare_interval_is_several_times_the_other(size: Size) -> None:
    for cell in replay.cells(size):
        settings = {k: v for k, v in cell.settings.items() if isinstance(v, float)}
        assert settings["rare_checkpoint_s"] >= 4 * settings["checkpoint_s"]
        assert cell.variants == ("on", "off", "off-rare")
