"""What is estimated is what the real runtime does at the model of a store.

The runtime runs in virtual time, RocksDB included. Code takes no time there, so neither does the
replay of changes: what is compared is objects, requests and bytes.
"""

from dataclasses import dataclass, replace
from statistics import mean

import pytest

from tests.property.estimate_runs import KEY_BYTES, Measured, measure
from tests.support.depth import more_in_depth
from tidelog.cost.model.embedded import estimate_changelog, estimate_incremental
from tidelog.cost.model.job import Settings, StoreLink, Workload
from tidelog.cost.model.usage import MONTH_S, Estimate, Flow
from tidelog.materialize.schedule import MaterializeConfig
from tidelog_bench.store import Kind


@dataclass(frozen=True)
class Case:
    """A job and its store; sizes in bytes, times in seconds."""

    retain: int = 3
    latency_ms: float = 30
    mb_per_s: float = 50
    keys: int = 2_000
    skew: float = 0.0
    value_bytes: int = 200
    writes_per_s: float = 500
    parallelism: int = 1
    checkpoint_s: float = 0.5
    interval_s: float = 10.0
    changelog: bool = True
    least_s: float = 10.0
    """Measured for an interval, or this long."""

    @property
    def workload(self) -> Workload:
        return Workload(
            self.writes_per_s,
            self.keys,
            key_bytes=KEY_BYTES,
            value_bytes=self.value_bytes,
            skew=self.skew,
        )

    @property
    def settings(self) -> Settings:
        return Settings(
            parallelism=self.parallelism,
            checkpoint_interval=self.checkpoint_s,
            retain=self.retain,
            sources=1,
            link=StoreLink(bytes_per_s=self.mb_per_s * 1e6, latency_s=self.latency_ms / 1e3),
            materialize=MaterializeConfig(
                interval=self.interval_s, replay_target=1e9, replay_rate=1e12
            ),
        )

    def measured(self) -> Measured:
        # The log of the first state is gone by then, and as many checkpoints retained as shall be.
        warm_s = 2 * self.interval_s + (self.retain + 4) * self.checkpoint_s
        return measure(
            self.workload,
            self.settings,
            warm_s=warm_s,
            seconds=max(self.interval_s, self.least_s),
            crashes=CRASHES,
            changelog=self.changelog,
        )

    def estimated(self) -> Estimate:
        estimate = estimate_changelog if self.changelog else estimate_incremental
        return estimate(self.workload, self.settings)


LARGE = Case(keys=20_000, value_bytes=500, writes_per_s=200, checkpoint_s=1.0, interval_s=20.0)
AT_HAND = Case(latency_ms=1, mb_per_s=1_000, checkpoint_s=0.31)
CASES = {
    "few checkpoints": Case(),
    "30 checkpoints": Case(retain=30),
    "100 checkpoints": Case(retain=100, parallelism=2),
    "300 checkpoints": Case(retain=300, writes_per_s=2_000, checkpoint_s=0.25, interval_s=2.5),
    "far away": Case(retain=30, latency_ms=100, parallelism=2),
    "far away, many": Case(retain=100, latency_ms=100),
    "large": replace(LARGE, retain=10, parallelism=2, mb_per_s=20),
    "large, slow": replace(LARGE, latency_ms=5, mb_per_s=5),
    "at hand": Case(retain=30, latency_ms=5),
    "two subtasks": replace(AT_HAND, keys=3_000, writes_per_s=1_800, parallelism=2),
    "three subtasks": replace(AT_HAND, keys=4_000, writes_per_s=1_800, parallelism=3, retain=1),
    "skewed": replace(AT_HAND, keys=3_000, writes_per_s=600, skew=0.5, interval_s=12.5),
    "hot": replace(AT_HAND, keys=200, writes_per_s=3_000, skew=1.0, parallelism=2),
    "idle": replace(AT_HAND, keys=500, writes_per_s=40, checkpoint_s=0.43),
    "rare checkpoints": replace(AT_HAND, checkpoint_s=4.3, interval_s=20.0),
    "no log": Case(changelog=False),
    "no log, 30 checkpoints": Case(changelog=False, retain=30, parallelism=2),
    "no log, far away": Case(changelog=False, retain=10, latency_ms=100, checkpoint_s=1.0),
    # Merges of the tables are rare, and delay checkpoints.
    "no log, large": replace(
        LARGE, changelog=False, parallelism=2, latency_ms=10, mb_per_s=5, least_s=80.0
    ),
}
USUAL = ("30 checkpoints", "large", "two subtasks", "hot", "idle", "no log, far away")
"""Slots, bandwidth, tails, hot rows, tails that gather and the missing log weigh most in one
each."""
CRASHES = more_in_depth(6, 16)
"""Moments at which a job crashes; the longest restart of them is compared."""


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("name", more_in_depth(USUAL, CASES))
def test_a_run_is_as_estimated(name: str) -> None:
    case = CASES[name]
    measured, estimate = case.measured(), case.estimated()
    check_restore(case, measured, estimate)
    check_checkpoints(measured, estimate)
    if case.changelog:
        check_log(measured, estimate)
    if case.latency_ms <= AT_HAND.latency_ms:
        check_segments(measured, estimate)


def check_restore(case: Case, measured: Measured, estimate: Estimate) -> None:
    restore = measured.longest
    assert estimate.restore_s == pytest.approx(restore.seconds, rel=0.25)
    gets = [restart.requests[Kind.GET] for restart in measured.restarts]
    # With a log when it is longest; without, tables have as many files as on average.
    expected = max(gets) if case.changelog else mean(gets)
    restores_per_s = case.settings.restores_per_month / MONTH_S
    assert estimate.usage.reads.gets / restores_per_s == pytest.approx(expected, rel=0.25, abs=5)
    # A start after a crash: its slot, and the proof that the store creates a name only once.
    assert restore.requests[Kind.LIST] == 7
    assert restore.requests[Kind.PUT] == 2
    lists = (estimate.usage.reads.lists - 7 * restores_per_s) * estimate.cycle_s
    # And now and then one of each kind of object and of the slots.
    interval_s = case.settings.object_check_interval
    assert interval_s is not None
    assert lists == pytest.approx(1 + 4 * estimate.cycle_s / interval_s, rel=0.001)


def check_checkpoints(measured: Measured, estimate: Estimate) -> None:
    requests = measured.traffic.requests
    assert estimate.checkpoint_s == pytest.approx(mean(measured.checkpoints_s), rel=0.25)
    assert requests[Kind.LIST] == pytest.approx(len(measured.checkpoints_s), abs=1)
    puts = estimate.usage.puts_per_s * measured.traffic.seconds
    assert puts == pytest.approx(requests[Kind.PUT], rel=0.1, abs=1)


def check_log(measured: Measured, estimate: Estimate) -> None:
    history, log, segment = measured.history, estimate.log, flow(estimate, "segment")
    assert log is not None
    uploaded = sum(written.bytes for written in history.written("segments/"))
    assert uploaded == pytest.approx(segment.bytes_per_s * history.seconds, rel=0.1)
    # What is stored proves that everything is deleted as fast as it is written.
    # Turns, uploads and checkpoints may be in step: then the log lives up to half an interval
    # longer or shorter than on average, at its start and at its end.
    slack = max(log.bytes_per_s * estimate.cycle_s, segment.bytes)
    stored, peak = history.mean_bytes("segments/"), history.peak_bytes("segments/")
    assert segment.stored_bytes == pytest.approx(stored, abs=0.1 * stored + slack)
    assert log.peak_bytes == pytest.approx(peak, abs=0.1 * peak + slack)


def check_segments(measured: Measured, estimate: Estimate) -> None:
    """Where the link delays nothing."""
    history, seconds = measured.history, measured.history.seconds
    segments = len(history.written("segments/"))
    assert flow(estimate, "segment").per_s * seconds == pytest.approx(segments, rel=0.1, abs=1)
    descriptors = flow(estimate, "descriptor").per_s + flow(estimate, "source descriptor").per_s
    written = len(history.written("materializations/"))
    assert descriptors * seconds == pytest.approx(written, abs=1)
    manifests = history.written("checkpoints/")
    size = sum(manifest.bytes for manifest in manifests) / len(manifests)
    # The last flush ahead of a barrier is a tick late at most, which is a tenth of its span.
    assert flow(estimate, "manifest").bytes == pytest.approx(size, rel=0.15)


def flow(estimate: Estimate, kind: str) -> Flow:
    return next(flow for flow in estimate.usage.flows if flow.kind == kind)
