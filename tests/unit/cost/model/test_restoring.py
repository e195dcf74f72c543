"""Checkpoints and restores are estimated as today's code makes them, within 25 %; PUTs within 10 %.

The runtime runs in virtual time at the model of a store. Code takes no time there, so neither
does the replay of changes: what is compared is requests and bytes.
"""

from dataclasses import dataclass, replace

import pytest

from tests.property.estimate_runs import KEY_BYTES, Measured, measure_at_a_store
from tests.support.depth import more_in_depth
from tidelog.cost.model.embedded import estimate_changelog, estimate_incremental
from tidelog.cost.model.estimate import Estimate
from tidelog.cost.model.restoring import Fetch, Objects, reads, restore_s
from tidelog.cost.model.settings import Link, Settings
from tidelog.cost.model.usage import MONTH_S
from tidelog.cost.model.workload import Workload
from tidelog.cost.prices import bill, built_in_books
from tidelog.materialize.config import MaterializeConfig
from tidelog_bench.store.latency import Kind


@dataclass(frozen=True)
class Case:
    """A job and its store; sizes in bytes, times in seconds."""

    retain: int = 3
    latency_ms: float = 30
    mb_per_s: float = 50
    keys: int = 2_000
    value_bytes: int = 200
    writes_per_s: float = 500
    parallelism: int = 1
    checkpoint_s: float = 0.5
    interval_s: float = 10.0
    changelog: bool = True

    @property
    def workload(self) -> Workload:
        return Workload(
            self.writes_per_s, self.keys, key_bytes=KEY_BYTES, value_bytes=self.value_bytes
        )

    @property
    def warm_s(self) -> float:
        """Until as many checkpoints are retained as shall be."""
        return max(2 * self.interval_s, (self.retain + 4) * self.checkpoint_s)

    @property
    def settings(self) -> Settings:
        return Settings(
            parallelism=self.parallelism,
            checkpoint_interval=self.checkpoint_s,
            retain=self.retain,
            sources=1,
            link=Link(bytes_per_s=self.mb_per_s * 1e6, latency_s=self.latency_ms / 1e3),
            materialize=MaterializeConfig(
                interval=self.interval_s, replay_target=1e9, replay_rate=1e12
            ),
        )

    def measured(self) -> Measured:
        return measure_at_a_store(
            self.workload,
            self.settings,
            warm_s=self.warm_s,
            seconds=max(self.interval_s, 10.0),
            crashes=CRASHES,
            changelog=self.changelog,
        )

    def estimated(self) -> Estimate:
        estimate = estimate_changelog if self.changelog else estimate_incremental
        return estimate(self.workload, self.settings)


LARGE = Case(keys=20_000, value_bytes=500, writes_per_s=200, checkpoint_s=1.0, interval_s=20.0)
CASES = {
    "few checkpoints": Case(),
    "30 checkpoints": Case(retain=30),
    "100 checkpoints": Case(retain=100, parallelism=2),
    "300 checkpoints": Case(retain=300, writes_per_s=2_000, checkpoint_s=0.25, interval_s=2.5),
    "far away": Case(retain=30, latency_ms=100, parallelism=2),
    "far away, many": Case(retain=100, latency_ms=100),
    "at hand": Case(retain=30, latency_ms=5),
    "large": replace(LARGE, retain=10, parallelism=2, mb_per_s=20),
    "large, slow": replace(LARGE, latency_ms=5, mb_per_s=5),
    "no log": Case(changelog=False),
    "no log, 30 checkpoints": Case(changelog=False, retain=30, parallelism=2),
    "no log, far away": Case(changelog=False, retain=10, latency_ms=100, checkpoint_s=1.0),
    "no log, large": replace(LARGE, changelog=False, parallelism=2, latency_ms=10, mb_per_s=5),
}


USUAL = ("30 checkpoints", "large", "no log, far away")
"""Slots, bandwidth and the missing log behind a latency weigh most in one each."""
CRASHES = more_in_depth(6, 16)
"""Moments at which a job crashes; the longest restart of them is compared."""


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("name", more_in_depth(USUAL, CASES))
def test_checkpoints_and_restores_are_what_todays_code_takes(name: str) -> None:
    case = CASES[name]
    measured, estimate = case.measured(), case.estimated()
    within = {"rel": 0.25}

    restore = measured.longest
    assert estimate.restore_s == pytest.approx(restore.seconds, **within)
    restores_per_s = case.settings.restores_per_month / MONTH_S
    assert estimate.usage.reads.gets / restores_per_s == pytest.approx(
        max(restart.requests[Kind.GET] for restart in measured.restarts), **within
    )
    # A start after a crash: its slot, and the proof that the store creates a name only once.
    assert restore.requests[Kind.LIST] == 7
    assert restore.requests[Kind.PUT] == 2

    checkpoints = len(measured.checkpoints_s)
    mean = sum(measured.checkpoints_s) / checkpoints
    assert estimate.checkpoint_s == pytest.approx(mean, **within)
    assert measured.traffic.requests[Kind.LIST] == pytest.approx(checkpoints, abs=1)
    lists = (estimate.usage.reads.lists - 7 * restores_per_s) * estimate.cycle_s
    assert lists == pytest.approx(1)
    puts = estimate.usage.puts_per_s * measured.traffic.seconds
    assert puts == pytest.approx(measured.traffic.requests[Kind.PUT], rel=0.1)


def test_every_book_bills_a_list_per_checkpoint() -> None:
    # A checkpoint a second is 2,628,000 in a month of 730 hours; nothing is restored.
    settings = replace(Settings(), restores_per_month=0.0)
    workload = Workload(1_000, 10_000)
    for estimate in (
        estimate_changelog(workload, settings),
        estimate_incremental(workload, settings),
    ):
        for book in built_in_books().values():
            billed = bill(book, estimate.usage).list
            assert billed == pytest.approx(2_628 * book.list_per_1000 / estimate.cycle_s)


def test_300_checkpoints_are_read_16_at_a_time() -> None:
    settings = Settings(link=Link(bytes_per_s=50e6, latency_s=0.03))
    few, many = (_fetch(slots=count) for count in (3, 300))
    more = restore_s(many, settings) - restore_s(few, settings)
    assert more == pytest.approx(297 / 16 * 0.03)


def test_more_processes_ask_for_more_and_take_as_long() -> None:
    fetch = _fetch(slots=3)
    one, four = Settings(), Settings(parallelism=4, processes=4)
    few, many = reads(fetch, one, 1.0), reads(fetch, four, 1.0)
    assert (many.gets, many.lists) == pytest.approx((4 * few.gets, 4 * few.lists))
    assert restore_s(fetch, four) == restore_s(fetch, one)


def _fetch(slots: int) -> Fetch:
    some = Objects(4, 4e4)
    return Fetch(Objects(slots, 0.0), some, some, Objects(50, 1e9), Objects(50, 1e6), changes=1e6)
