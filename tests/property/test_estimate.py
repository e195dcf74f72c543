"""What is estimated of the log is what the real runtime leaves in a store, within 2 %.

The job runs in virtual time on the real tasks, write buffers, uploader, checkpoints,
materializations and retention; keys are drawn from a Zipf distribution. Settings at a threshold of
the runtime are left out: there a few bytes decide, and an average has nothing to say.
"""

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from tests.property.estimate_runs import KEY_BYTES, History, simulate
from tests.property.profiles import looking
from tests.support.depth import more_in_depth
from tidelog.cost.model.embedded import estimate_changelog
from tidelog.cost.model.estimate import Estimate
from tidelog.cost.model.log import flushes
from tidelog.cost.model.settings import Link, Settings
from tidelog.cost.model.usage import Flow
from tidelog.cost.model.workload import Workload
from tidelog.materialize.config import MaterializeConfig

INSTANT = Link(bytes_per_s=1e12, latency_s=0.0)
PERIODS = more_in_depth(1, 2)
"""Materialization intervals that are measured."""
MERGES = more_in_depth(4, 8)
"""The same where several merges of the table's files are awaited."""


def a_workload(writes_per_s: float, keys: int, skew: float) -> Workload:
    return Workload(writes_per_s, keys, key_bytes=KEY_BYTES, value_bytes=200, skew=skew)


def some_settings(
    parallelism: int, checkpoint_s: float, interval_s: float, retain: int
) -> Settings:
    return Settings(
        parallelism=parallelism,
        checkpoint_interval=checkpoint_s,
        retain=retain,
        sources=1,
        link=INSTANT,
        materialize=MaterializeConfig(interval=interval_s, replay_target=1e9),
    )


def flow(estimate: Estimate, kind: str) -> Flow:
    return next(flow for flow in estimate.usage.flows if flow.kind == kind)


def at_a_threshold(workload: Workload, settings: Settings) -> bool:
    """A tail that may or may not stay in the manifest, rows that may or may not be hot."""
    found = flushes(workload, settings.parallelism, settings.flush, settings.checkpoint_interval)
    tail = found.barrier_rows * workload.raw_change_bytes / settings.upload.inline_bytes
    cycle = found.all_rows * workload.raw_change_bytes / settings.upload.inline_bytes
    lead = settings.checkpoint_interval - 0.1
    updates_per_row = workload.writes_per_s * lead / workload.distinct(lead)
    # An inline tail is old when the first of several subtasks flushes: their order decides.
    several = settings.parallelism > 1 and tail < 1
    # What comes before it is worth a segment with the tail before, and not without: both go on.
    either = tail < 1 and cycle - tail < 1.2
    return 0.7 < tail < 1.4 or 1.5 < updates_per_row < 3 or several or either


def run(workload: Workload, settings: Settings, periods: int = PERIODS) -> tuple[History, Estimate]:
    interval = settings.materialize.interval
    history = simulate(workload, settings, 2 * interval, periods * interval)
    return history, estimate_changelog(workload, settings)


@pytest.mark.timeout(3_600)
@looking(0, deep=30)
@given(
    writes_per_s=st.sampled_from([500, 600, 1_400, 1_800]),
    keys=st.integers(100, 4_000),
    skew=st.sampled_from([0.0, 0.5, 1.0]),
    parallelism=st.integers(1, 3),
    checkpoint_s=st.sampled_from([0.23, 0.31]),
    interval_s=st.sampled_from([10.0, 12.5]),
    retain=st.integers(1, 3),
)
@example(1_800, 3_000, 0.0, 2, 0.31, 10.0, 2)
@example(600, 3_000, 0.5, 1, 0.31, 12.5, 1)
@example(3_000, 200, 1.0, 1, 0.31, 10.0, 2)
def test_log_and_requests_are_as_estimated(
    writes_per_s: int,
    keys: int,
    skew: float,
    parallelism: int,
    checkpoint_s: float,
    interval_s: float,
    retain: int,
) -> None:
    workload = a_workload(writes_per_s, keys, skew)
    settings = some_settings(parallelism, checkpoint_s, interval_s, retain)
    assume(not at_a_threshold(workload, settings))
    history, estimate = run(workload, settings)
    seconds = history.end - history.start
    assert estimate.log is not None

    segments = history.written("segments/")
    estimated = flow(estimate, "segment")
    assert len(segments) == pytest.approx(estimated.per_s * seconds, rel=0.02, abs=1)
    uploaded = sum(segment.bytes for segment in segments)
    assert uploaded == pytest.approx(estimated.bytes_per_s * seconds, rel=0.02)

    manifests = history.written("checkpoints/")
    assert len(manifests) == pytest.approx(seconds / checkpoint_s, rel=0.02, abs=1)
    # The last flush before a barrier is a tick late at most, which is a tenth of its span.
    size = sum(manifest.bytes for manifest in manifests) / len(manifests)
    assert size == pytest.approx(flow(estimate, "manifest").bytes, rel=0.1)

    descriptors = flow(estimate, "descriptor").per_s + flow(estimate, "source descriptor").per_s
    assert len(history.written("materializations/")) == pytest.approx(descriptors * seconds)

    # Turns, uploads and checkpoints may be in step: then the log lives up to half an interval
    # longer or shorter than on average, at its start and at its end.
    slack = estimate.log.bytes_per_s * checkpoint_s
    mean = history.mean_bytes("segments/")
    assert mean == pytest.approx(estimated.stored_bytes, abs=0.02 * estimated.stored_bytes + slack)
    peak, most = history.peak_bytes("segments/"), estimate.log.peak_bytes
    assert 0.98 * most - slack <= peak <= 1.02 * most


def test_an_idle_job_keeps_its_changes_in_manifests_until_they_are_worth_a_segment() -> None:
    workload, settings = a_workload(40, 500, 0.0), some_settings(1, 0.43, 8.5, 2)
    history, estimate = run(workload, settings, periods=2)
    seconds = history.end - history.start
    segments, manifests = history.written("segments/"), history.written("checkpoints/")
    assert len(segments) < len(manifests) / 3
    assert len(segments) == pytest.approx(flow(estimate, "segment").per_s * seconds, abs=1)
    size = sum(manifest.bytes for manifest in manifests) / len(manifests)
    assert size == pytest.approx(flow(estimate, "manifest").bytes, rel=0.1)


def test_everything_that_is_written_is_deleted_at_the_same_rate() -> None:
    workload, settings = a_workload(1_400, 3_000, 0.0), some_settings(1, 0.43, 8.5, 2)
    history, estimate = run(workload, settings, periods=MERGES)
    seconds = history.end - history.start
    written = len(history.written(""))
    assert written == pytest.approx(estimate.usage.puts_per_s * seconds, rel=0.05)
    assert history.deleted() == pytest.approx(estimate.usage.deletes_per_s * seconds, rel=0.05)
