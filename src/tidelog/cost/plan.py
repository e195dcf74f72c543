"""Plans: the settings that reach targets at the least cost.

Invariants: every candidate could be run as it stands, with options of `tidelog run`; amounts are
compared within one currency. What is chosen meets every target if anything does; of that it is the
cheapest, and of equally cheap ones the fastest to restore.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from statistics import mode
from typing import Final

from tidelog.cost.model.embedded import estimate_changelog, estimate_incremental
from tidelog.cost.model.job import Settings, Workload
from tidelog.cost.model.log import log_cycle
from tidelog.cost.model.tables import MaterializationTrigger
from tidelog.cost.model.usage import Estimate, Strategy
from tidelog.cost.prices import Bill, PriceBook, bill
from tidelog.errors import ConfigError, require

_STEPS: Final = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0, 10.0, 15.0, 20.0, 30.0, 45.0)
INTERVALS: Final = (
    *_STEPS,
    *(60 * step for step in _STEPS),
    *(3_600.0, 5_400.0, 7_200.0, 10_800.0, 21_600.0, 43_200.0, 86_400.0),
)
"""Materialization intervals that are tried, in seconds: round, because users set round ones."""
CHECKPOINTS: Final = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0)
"""Checkpoint intervals that are tried, in seconds."""
_ROOM: Final = 1.25
"""Room in the replay target above what the interval leads to."""
_EQUAL: Final = 1.01
"""Costs that differ by less than this factor count as equal: the estimate is no better."""


@dataclass(frozen=True, slots=True)
class Money:
    """An amount in a currency of three letters."""

    amount: float
    currency: str

    def __str__(self) -> str:
        return f"{self.amount:.2f} {self.currency}"


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
        return None if self.interval_s is None else self.settings.materialize.replay_target

    @property
    def cost(self) -> Money:
        return Money(self.bill.total, self.bill.currency)


@dataclass(frozen=True, slots=True)
class PlanTargets:
    """The targets of a plan; None: no limit."""

    checkpoint_s: float | None = None
    restore_s: float | None = None
    late_s: float | None = None
    """How late output may be."""
    budget: Money | None = None

    def __post_init__(self) -> None:
        """Raises ConfigError for a target that is not above 0."""
        budget = None if self.budget is None else self.budget.amount
        targets = ("--restore", self.restore_s), ("--lateness", self.late_s), ("--budget", budget)
        for what, value in targets:
            require(what, value, value is None or value > 0, "more than 0")

    def missed_by(self, candidate: Candidate) -> dict[str, float]:
        """The share by which each target that was asked for is missed; 0 or less: it is met."""
        estimate, cost = candidate.estimate, candidate.cost
        shares = dict[str, float]()
        if self.checkpoint_s is not None:
            shares["checkpoint"] = estimate.cycle_s / self.checkpoint_s - 1
        if self.late_s is not None:
            shares["lateness"] = estimate.late_s / self.late_s - 1
        if self.restore_s is not None:
            shares["restore"] = estimate.restore_s / self.restore_s - 1
        if self.budget is not None and self.budget.currency == cost.currency:
            shares["budget"] = cost.amount / self.budget.amount - 1
        return shares

    def distance(self, candidate: Candidate) -> float:
        """The share by which the target that is missed most is missed; 0 or less: all are met."""
        return max(self.missed_by(candidate).values(), default=0.0)

    def intervals(self, interval_s: float) -> list[float]:
        """The checkpoint intervals that are worth a try where a job is to have one of
        `interval_s`: that one and longer ones, and with a lateness all that are short enough.
        """
        if self.checkpoint_s is None and self.late_s is not None:
            return [*CHECKPOINTS[: max(1, bisect_left(CHECKPOINTS, self.late_s))]]
        return [interval_s, *CHECKPOINTS[bisect_right(CHECKPOINTS, interval_s) :]]


def candidates(
    workload: Workload, settings: Settings, books: Sequence[PriceBook], *, egress: bool = False
) -> list[Candidate]:
    """All settings that are tried, at each provider in turn: the shortest interval first and the
    changelog off at the end.

    An interval that does not decide, because the log grows too large before or uploads take longer,
    is tried only when none does.
    """
    estimates: list[tuple[Settings, Estimate]] = []
    deciding: list[tuple[Settings, Estimate]] = []
    for interval in INTERVALS:
        if interval >= settings.checkpoint_interval:
            on = _with_interval(workload, settings, interval)
            estimates.append((on, estimate_changelog(workload, on)))
            if estimates[-1][1].trigger == MaterializationTrigger.INTERVAL:
                deciding.append(estimates[-1])
    off = settings, estimate_incremental(workload, settings)
    choices: list[Candidate] = []
    for book in books:
        for on, estimate in (*(deciding or estimates), off):
            choices.append(Candidate(on, estimate, bill(book, estimate.usage, egress=egress)))
    return choices


def choose(choices: Sequence[Candidate], targets: PlanTargets) -> Candidate:
    """The best candidate that meets the targets, else the one that misses them by the least.

    Costs are compared in the currency that most candidates have.
    """
    currency = mode(choice.cost.currency for choice in choices)
    comparable = [choice for choice in choices if choice.cost.currency == currency]
    meeting = [choice for choice in comparable if targets.distance(choice) <= 0]
    if not meeting:
        return min(comparable, key=targets.distance)
    cheapest = min(meeting, key=lambda choice: choice.bill.total).bill.total
    equal = [choice for choice in meeting if choice.bill.total <= cheapest * _EQUAL]
    return min(equal, key=lambda choice: choice.estimate.restore_s)


def _with_interval(workload: Workload, settings: Settings, interval: float) -> Settings:
    """Settings in which the interval decides, as far as the user can say so."""
    config, cycle_s = settings.materialize, settings.checkpoint_interval
    changes_per_s = log_cycle(workload, settings, cycle_s).changes / cycle_s
    replay_s = changes_per_s / settings.keyed_per_process * interval / config.replay_rate
    target = max(config.replay_target, float(ceil(_ROOM * replay_s)))
    return settings.with_materialization(interval, target)


def in_currency(
    books: Sequence[PriceBook], budget: Money | None
) -> tuple[list[PriceBook], list[str]]:
    """The books in the currency of a budget, and a note of others; raises ConfigError for none."""
    if budget is None:
        return list(books), []
    fitting, omitted, others = [], [], set()
    for book in books:
        if book.currency == budget.currency:
            fitting.append(book)
        else:
            omitted.append(f"{book.provider} ({book.currency})")
            others.add(book.currency)
    if not fitting:
        raise ConfigError(
            f"--budget {budget}",
            expected=f"a currency of the prices: {', '.join(sorted(others))}",
            found=budget.currency,
            action="give the budget in that currency, or pass a price book with --prices FILE",
        )
    note = f"left out, because the budget is in {budget.currency}: {', '.join(omitted)}"
    return fitting, [note] if omitted else []
