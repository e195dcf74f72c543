"""The settings a plan tries: materialization intervals, and the changelog off.

Invariants: every candidate could be run as it stands, with options of `tidelog run`; intervals are
round, because users set round ones; an interval that does not decide, because the log grows too
large before or uploads take longer, is tried only when none does.
"""

from dataclasses import dataclass, replace
from math import ceil
from typing import Final

from tidelog.cost.model.bill import Bill, bill
from tidelog.cost.model.changelog import estimate_changelog
from tidelog.cost.model.estimate import Estimate, Strategy
from tidelog.cost.model.incremental import estimate_incremental
from tidelog.cost.model.materializing import Trigger
from tidelog.cost.model.settings import Settings
from tidelog.cost.model.uploads import log_cycle
from tidelog.cost.model.workload import Workload
from tidelog.cost.plan.targets import Money, Reached
from tidelog.cost.prices import PriceBook

_STEPS: Final = (1, 1.5, 2, 3, 5, 7, 10, 15, 20, 30, 45)
INTERVALS: Final = (
    *(float(step) for step in _STEPS),
    *(60.0 * step for step in _STEPS),
    *(3_600.0 * step for step in (1, 1.5, 2, 3, 6, 12, 24)),
)
"""Materialization intervals that are tried, in seconds."""
_ROOM: Final = 1.25
"""Room in the replay target above what the interval leads to."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One choice of settings, estimated and priced at one provider."""

    settings: Settings
    estimate: Estimate
    bill: Bill

    @property
    def interval_s(self) -> float | None:
        """Between two materializations; None with the changelog off."""
        on = self.estimate.strategy is Strategy.CHANGELOG
        return self.settings.materialize.interval if on else None

    @property
    def replay_target_s(self) -> float | None:
        """The replay target it needs; None with the changelog off."""
        on = self.estimate.strategy is Strategy.CHANGELOG
        return self.settings.materialize.replay_target if on else None

    @property
    def reached(self) -> Reached:
        """What targets are compared with."""
        cost = Money(self.bill.total, self.bill.currency)
        return Reached(self.estimate.cycle_s, self.estimate.restore_s, cost)


def estimates(workload: Workload, settings: Settings) -> list[tuple[Settings, Estimate]]:
    """Every candidate, the shortest interval first and the changelog off at the end."""
    tried = [
        _with_interval(workload, settings, interval)
        for interval in INTERVALS
        if interval >= settings.checkpoint_interval
    ]
    found = [(on, _kept_up(estimate_changelog(workload, on))) for on in tried]
    deciding = [pair for pair in found if pair[1].trigger == Trigger.INTERVAL]
    return [*(deciding or found), (settings, estimate_incremental(workload, settings))]


def candidates(
    found: list[tuple[Settings, Estimate]], book: PriceBook, *, egress: bool = False
) -> list[Candidate]:
    """The same, priced."""
    return [
        Candidate(settings, estimate, bill(book, estimate.usage, egress=egress))
        for settings, estimate in found
    ]


def _with_interval(workload: Workload, settings: Settings, interval: float) -> Settings:
    """Settings in which the interval decides, as far as the user can say so."""
    cycle_s = settings.checkpoint_interval
    changes_per_s = log_cycle(workload, settings, cycle_s).changes / cycle_s
    needed = _ROOM * changes_per_s / settings.keyed_per_process * interval
    needed /= settings.materialize.replay_rate
    return settings.with_materialization(
        interval, max(settings.materialize.replay_target, float(ceil(needed)))
    )


def _kept_up(estimate: Estimate) -> Estimate:
    """A checkpoint that takes longer than its interval delays the next one."""
    return replace(estimate, cycle_s=max(estimate.cycle_s, estimate.checkpoint_s or 0.0))
