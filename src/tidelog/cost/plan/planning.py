"""Plans: the search over settings, for every provider.

Invariants: the candidates are the same for all providers, only their prices differ; amounts are
compared within one currency.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mode

from tidelog.cost.model.settings import Settings
from tidelog.cost.model.workload import Workload
from tidelog.cost.plan.candidates import Candidate, candidates, estimates
from tidelog.cost.plan.decision import Decision, decide
from tidelog.cost.plan.targets import Money, Targets, excess
from tidelog.cost.prices import PriceBook
from tidelog.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan for one provider."""

    book: PriceBook
    candidates: Sequence[Candidate]
    decision: Decision


def make_plans(
    workload: Workload,
    settings: Settings,
    books: Sequence[PriceBook],
    targets: Targets,
    *,
    egress: bool = False,
) -> list[Plan]:
    """A plan for each provider."""
    found = estimates(workload, settings)
    plans = []
    for book in books:
        priced = candidates(found, book, egress=egress)
        plans.append(Plan(book, priced, decide(priced, targets)))
    return plans


def in_currency(
    books: Sequence[PriceBook], budget: Money | None
) -> tuple[list[PriceBook], list[str]]:
    """The books a budget can be compared with, and what to say of the others.

    Raises ConfigError when there is none.
    """
    if budget is None:
        return list(books), []
    fitting = [book for book in books if book.currency == budget.currency]
    if not fitting:
        raise ConfigError(
            f"--budget {budget}",
            expected=f"a currency of the prices: {', '.join(sorted({b.currency for b in books}))}",
            found=budget.currency,
            action="give the budget in that currency, or pass a price book with --prices FILE",
        )
    others = [f"{b.provider} ({b.currency})" for b in books if b.currency != budget.currency]
    said = f"left out, because the budget is in {budget.currency}: {', '.join(others)}"
    return fitting, [said] if others else []


def focus(plans: Sequence[Plan], targets: Targets) -> Plan:
    """The plan to look at: the cheapest that meets the targets, else what comes nearest.

    Costs are compared in the currency that most providers have.
    """
    currency = mode(plan.book.currency for plan in plans)
    comparable = [plan for plan in plans if plan.book.currency == currency]
    meeting = [plan for plan in comparable if plan.decision.recommended]
    if meeting:
        return min(meeting, key=lambda plan: plan.decision.nearest.bill.total)
    return min(comparable, key=lambda plan: _missed_by(plan, targets))


def _missed_by(plan: Plan, targets: Targets) -> float:
    return max(excess(targets, plan.decision.nearest.reached).values())
