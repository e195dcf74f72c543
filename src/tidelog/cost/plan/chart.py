"""What the plots of a plan show: cost and restore time over the materialization interval.

Invariant: both curves and every mark come from the candidates of one provider; a plot adds nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tidelog.cost.plan.candidates import Candidate
from tidelog.cost.plan.decision import Decision
from tidelog.cost.plan.targets import Targets


@dataclass(frozen=True, slots=True)
class Mark:
    """The point to look at, and what it is."""

    label: str
    interval_s: float
    cost: float
    restore_s: float


@dataclass(frozen=True, slots=True)
class Chart:
    """Two curves over the same intervals; times in seconds, costs a month."""

    title: str
    currency: str
    intervals_s: tuple[float, ...]
    costs: tuple[float, ...]
    restores_s: tuple[float, ...]
    mark: Mark | None
    """The point to look at; None when it has the changelog off and so lies on no curve."""
    budget: float | None
    restore_target_s: float | None

    @property
    def mark_is_late(self) -> bool:
        """The mark lies in the right half: there is room for words on its left."""
        middle = (self.intervals_s[0] * self.intervals_s[-1]) ** 0.5
        return self.mark is not None and self.mark.interval_s > middle


def chart_of(
    title: str, found: Sequence[Candidate], decision: Decision, targets: Targets
) -> Chart | None:
    """The chart of one provider; None when fewer than two candidates lie on a curve."""
    points = [(c.interval_s, c) for c in found if c.interval_s is not None]
    if len(points) < 2:
        return None
    currency = points[0][1].bill.currency
    budget = targets.budget
    same = budget is not None and budget.currency == currency
    return Chart(
        title=title,
        currency=currency,
        intervals_s=tuple(interval for interval, _ in points),
        costs=tuple(candidate.bill.total for _, candidate in points),
        restores_s=tuple(candidate.estimate.restore_s for _, candidate in points),
        mark=_mark(decision),
        budget=budget.amount if budget is not None and same else None,
        restore_target_s=targets.restore_s,
    )


def _mark(decision: Decision) -> Mark | None:
    chosen = decision.nearest
    if chosen.interval_s is None:
        return None
    label = "recommended" if decision.recommended else "nearest"
    return Mark(label, chosen.interval_s, chosen.bill.total, chosen.estimate.restore_s)


def duration_text(seconds: float) -> str:
    """A duration as the command line takes it: 500ms, 1.5s, 20s, 3m, 1.5h."""
    for unit, length in (("h", 3_600.0), ("m", 60.0)):
        if seconds >= length and (seconds / length * 2).is_integer():
            return f"{seconds / length:g}{unit}"
    return f"{seconds:g}s" if seconds >= 1 else f"{seconds * 1000:g}ms"
