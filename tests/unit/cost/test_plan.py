"""Plans: what is tried, and what is chosen."""

from dataclasses import replace
from typing import Any

import pytest

from tidelog.cost.model.embedded import estimate_changelog, estimate_incremental
from tidelog.cost.model.job import Settings, Workload
from tidelog.cost.plan import (
    INTERVALS,
    Candidate,
    Money,
    PlanTargets,
    candidates,
    choose,
    in_currency,
)
from tidelog.cost.prices import Bill, built_in_books, choose_books
from tidelog.errors import ConfigError

WORKLOAD = Workload(20_000, 5_000_000, skew=1.0, compression=0.6)
SETTINGS = Settings(parallelism=4)
S3 = built_in_books()["aws-s3-standard"]


def candidate(interval: float, restore_s: float, cost: float) -> Candidate:
    """A candidate of which only these figures matter."""
    settings = SETTINGS.with_materialization(interval, 2.0)
    estimate = replace(BASE, restore_s=restore_s)
    return Candidate(settings, estimate, Bill("p", "USD", cost, 0, 0, 0, 0, 0))


BASE = estimate_changelog(WORKLOAD, SETTINGS)
FOUND = [candidate(10, 5, 100), candidate(60, 10, 50), candidate(600, 60, 20)]


def usd(amount: float) -> Money:
    return Money(amount, "USD")


@pytest.mark.parametrize(
    ("asked", "chosen"),
    [
        ({}, 2),
        ({"restore_s": 30, "budget": usd(70)}, 1),
        # Twice the budget and twice the time are nearer than five times one of them.
        ({"restore_s": 30, "budget": usd(10)}, 2),
        ({"restore_s": 9, "budget": usd(45)}, 1),
        ({"budget": Money(1, "CNY")}, 2),
    ],
    ids=["no targets", "met", "out of reach", "exclude each other", "of another currency"],
)
def test_the_cheapest_that_meets_the_targets_is_chosen_or_what_comes_nearest(
    asked: dict[str, Any], chosen: int
) -> None:
    assert choose(FOUND, PlanTargets(1.0, **asked)) is FOUND[chosen]


def test_checkpoints_that_take_longer_than_asked_are_missed() -> None:
    slow = [
        replace(one, estimate=replace(one.estimate, cycle_s=cycle))
        for one, cycle in zip(FOUND, (3.0, 2.0, 4.0), strict=True)
    ]
    targets = PlanTargets(1.0)
    assert choose(slow, targets) is slow[1]
    assert targets.missed_by(slow[1]) == {"checkpoint": 1.0}


def test_a_longer_checkpoint_interval_costs_less_and_makes_output_later() -> None:
    small = Workload(10, 1_000)
    intervals = PlanTargets(1.0).intervals(1.0)
    tried = [replace(Settings(), checkpoint_interval=each) for each in intervals]
    best = [choose(candidates(small, each, [S3]), PlanTargets()) for each in tried]
    assert [one.settings.checkpoint_interval for one in best] == intervals
    lateness, costs = [one.estimate.late_s for one in best], [one.bill.total for one in best]
    assert lateness == sorted(lateness) and costs == sorted(costs, reverse=True)
    assert costs[0] > 5 * costs[intervals.index(10.0)]


def test_a_lateness_that_is_asked_chooses_the_checkpoint_interval() -> None:
    targets = PlanTargets(late_s=12.0)
    small = Workload(10, 1_000)
    found = [
        each
        for interval in targets.intervals(1.0)
        for each in candidates(small, replace(Settings(), checkpoint_interval=interval), [S3])
    ]
    chosen = choose(found, targets)
    assert chosen.settings.checkpoint_interval == 10.0
    assert chosen.estimate.late_s <= 12.0


def test_every_candidate_runs_as_it_stands_and_its_interval_decides() -> None:
    found = candidates(WORKLOAD, SETTINGS, [S3])
    intervals = [one.interval_s for one in found]
    assert intervals[-1] is None and set(intervals[:-1]) <= set(INTERVALS)
    for one in found[:-1]:
        assert one.estimate.trigger == "interval"
        assert one.estimate.materialize_s == one.interval_s
        assert one.replay_target_s is not None and one.replay_target_s >= 2


def test_a_job_that_does_not_wait_for_its_tables_begins_after_the_same_time_at_any_size() -> None:
    begins = []
    for keys in (1_000_000, 1_000_000_000):
        workload = Workload(writes_per_s=2_000, keys=keys)
        estimate = estimate_incremental(workload, Settings())
        assert estimate.first_record_s <= estimate.restore_s
        begins.append(estimate.first_record_s)
    # The manifest of a large table is larger.
    assert begins[1] < begins[0] + 1 < estimate.restore_s


def test_costs_fall_and_restores_grow_with_the_interval() -> None:
    found = [one for one in candidates(WORKLOAD, SETTINGS, [S3]) if one.interval_s]
    restores = [one.estimate.restore_s for one in found]
    assert restores == sorted(restores)
    assert found[0].bill.total > 3 * found[-1].bill.total


def test_the_cheapest_provider_that_meets_the_targets_is_chosen() -> None:
    targets = PlanTargets(1.0, restore_s=30, budget=usd(60))
    found = candidates(WORKLOAD, SETTINGS, choose_books([], []))
    chosen = choose(found, targets)
    meeting = [c for c in found if c.cost.currency == "USD" and targets.distance(c) <= 0]
    assert {c.bill.provider for c in meeting} > {chosen.bill.provider}
    assert chosen.bill.total <= 1.01 * min(c.bill.total for c in meeting)


def test_a_budget_leaves_other_currencies_out_and_says_so() -> None:
    books, said = in_currency(choose_books([], []), Money(200, "CNY"))
    assert [book.provider for book in books] == ["aliyun-oss-standard"]
    assert len(said) == 1 and "aws-s3-standard (USD)" in said[0]
    with pytest.raises(ConfigError, match="EUR"):
        in_currency(choose_books([], []), Money(200, "EUR"))
    assert in_currency(books, None) == (books, [])
