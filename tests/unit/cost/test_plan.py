"""Plans: what is recommended, what binds it, and what is said when nothing will do."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tidelog.cost.model.embedded import estimate_changelog
from tidelog.cost.model.settings import Settings
from tidelog.cost.model.workload import Workload
from tidelog.cost.plan import (
    INTERVALS,
    Candidate,
    Money,
    PlanTarget,
    PlanTargets,
    decide,
    focus,
    in_currency,
    make_plans,
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


def candidates(workload: Workload, settings: Settings) -> Sequence[Candidate]:
    (plan,) = make_plans(workload, settings, [S3], PlanTargets(settings.checkpoint_interval))
    return plan.candidates


def usd(amount: float) -> Money:
    return Money(amount, "USD")


def test_without_targets_the_cheapest_is_recommended() -> None:
    plan = decide(S3, FOUND, PlanTargets(1.0))
    assert plan.nearest is FOUND[2]
    assert plan.bindings == ()


def test_the_cheapest_that_meets_the_targets_is_recommended_and_the_binding_one_named() -> None:
    plan = decide(S3, FOUND, PlanTargets(1.0, restore_s=30, budget=usd(70)))
    assert plan.nearest is FOUND[1]
    (binding,) = plan.bindings
    assert (binding.target, binding.instead) == (PlanTarget.RESTORE, FOUND[2])


def test_of_equally_cheap_ones_the_fastest_restore_is_recommended() -> None:
    flat = [candidate(600, 60, 20.0), candidate(300, 30, 20.1), candidate(60, 10, 30)]
    assert decide(S3, flat, PlanTargets(1.0)).nearest is flat[1]


def test_a_target_that_nothing_meets_is_the_obstacle() -> None:
    plan = decide(S3, FOUND, PlanTargets(1.0, restore_s=30, budget=usd(10)))
    assert not plan.met
    (obstacle,) = plan.obstacles
    assert (obstacle.target, obstacle.alone, obstacle.best) == (PlanTarget.BUDGET, True, FOUND[2])
    assert plan.nearest is FOUND[2]  # twice the budget and twice the time, not five times one


def test_targets_that_exclude_each_other_are_named_with_what_each_takes() -> None:
    plan = decide(S3, FOUND, PlanTargets(1.0, restore_s=9, budget=usd(45)))
    assert not plan.met
    assert plan.nearest is FOUND[1]
    assert [(o.target, o.alone, o.best) for o in plan.obstacles] == [
        (PlanTarget.RESTORE, False, FOUND[0]),
        (PlanTarget.BUDGET, False, FOUND[2]),
    ]


def test_checkpoints_that_take_longer_than_asked_are_an_obstacle() -> None:
    slow = [
        replace(one, estimate=replace(one.estimate, cycle_s=cycle))
        for one, cycle in zip(FOUND, (3.0, 2.0, 4.0), strict=True)
    ]
    plan = decide(S3, slow, PlanTargets(1.0))
    assert not plan.met
    assert [(o.target, o.best) for o in plan.obstacles] == [(PlanTarget.CHECKPOINT, slow[1])]


def test_a_budget_in_another_currency_is_no_target() -> None:
    assert decide(S3, FOUND, PlanTargets(1.0, budget=Money(1, "CNY"))).nearest is FOUND[2]


@pytest.mark.parametrize("targets", [{"restore_s": 0.0}, {"budget": Money(0, "USD")}])
def test_targets_that_mean_nothing_are_refused(targets: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        PlanTargets(1.0, **targets)  # type: ignore[arg-type]


def test_every_candidate_runs_as_it_stands_and_its_interval_decides() -> None:
    found = candidates(WORKLOAD, SETTINGS)
    intervals = [one.interval_s for one in found]
    assert intervals[-1] is None and set(intervals[:-1]) <= set(INTERVALS)
    for one in found[:-1]:
        assert one.estimate.trigger == "interval"
        assert one.estimate.materialize_s == one.interval_s
        assert one.replay_target_s is not None and one.replay_target_s >= 2


def test_a_job_whose_tables_never_keep_up_still_has_candidates() -> None:
    heavy = Workload(2_000_000, 10**9)
    found = candidates(heavy, SETTINGS)
    assert len(found) > 2
    assert {one.estimate.trigger for one in found[:-1]} <= {"bandwidth", "log size"}


def test_intervals_are_not_shorter_than_those_of_checkpoints() -> None:
    rare = replace(SETTINGS, checkpoint_interval=30.0)
    found = candidates(WORKLOAD, rare)
    assert min(one.interval_s for one in found if one.interval_s is not None) == 30.0


def test_costs_fall_and_restores_grow_with_the_interval() -> None:
    found = [one for one in candidates(WORKLOAD, SETTINGS) if one.interval_s]
    restores = [one.estimate.restore_s for one in found]
    assert restores == sorted(restores)
    assert found[0].bill.total > 3 * found[-1].bill.total


def test_the_cheapest_provider_that_meets_the_targets_is_looked_at() -> None:
    targets = PlanTargets(1.0, restore_s=30, budget=usd(60))
    plans = make_plans(WORKLOAD, SETTINGS, choose_books([], []), targets)
    shown = focus(plans, targets)
    usd_plans = [plan for plan in plans if plan.book.currency == "USD"]
    assert shown.nearest.bill.total == min(plan.nearest.bill.total for plan in usd_plans)


def test_a_budget_leaves_other_currencies_out_and_says_so() -> None:
    books, said = in_currency(choose_books([], []), Money(200, "CNY"))
    assert [book.provider for book in books] == ["aliyun-oss-standard"]
    assert len(said) == 1 and "aws-s3-standard (USD)" in said[0]
    with pytest.raises(ConfigError, match="EUR"):
        in_currency(choose_books([], []), Money(200, "EUR"))
    assert in_currency(books, None) == (books, [])
