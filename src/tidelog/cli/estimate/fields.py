"""The JSON of `estimate`, `plan` and `overhead`: docs/reference/cli-json.md.

Invariant: times are seconds, sizes bytes, amounts in the currency beside them; rates are a day's.
"""

from collections.abc import Sequence
from datetime import date
from typing import Any

from tidelog.cli.estimate.description import Described
from tidelog.cli.estimate.prices import book_fields
from tidelog.cli.output import fields_of
from tidelog.cost.model.bill import Bill
from tidelog.cost.model.estimate import Estimate
from tidelog.cost.model.usage import DAY_S, MONTH_S, Usage
from tidelog.cost.plan.candidates import Candidate
from tidelog.cost.plan.planning import Plan
from tidelog.cost.plan.targets import Targets, excess


def described_fields(described: Described, day: date, warnings: Sequence[str]) -> dict[str, Any]:
    """What was asked: the job, and the prices it is priced with."""
    settings, link = described.settings, described.settings.link
    return {
        "workload": described.workload,
        "settings": {
            "parallelism": settings.parallelism,
            "processes": settings.processes,
            "checkpoint_interval_s": settings.checkpoint_interval,
            "retain": settings.retain,
            "restores_per_month": settings.restores_per_month,
            "bandwidth_bytes_per_s": link.bytes_per_s,
            "latency_s": link.latency_s,
            "egress": described.egress,
        },
        "price_books": [book_fields(book, day) for book in described.books],
        "warnings": warnings,
    }


def estimate_fields(estimate: Estimate) -> dict[str, Any]:
    """One strategy without its bills."""
    usage = estimate.usage
    return {
        **fields_of(estimate, "usage"),
        "objects_per_day": usage.objects_per_s * DAY_S,
        "puts_per_day": usage.puts_per_s * DAY_S,
        "lists_per_day": usage.reads.lists * DAY_S,
        "gets_per_day": usage.reads.gets * DAY_S,
        "deletes_per_day": usage.deletes_per_s * DAY_S,
        "uploaded_bytes_per_day": usage.uploaded_per_s * DAY_S,
        "read_bytes_per_month": usage.reads.bytes * MONTH_S,
        "stored_bytes": usage.stored_bytes,
        "stored_objects": usage.stored_objects,
        "objects": object_fields(usage),
    }


def object_fields(usage: Usage) -> list[dict[str, Any]]:
    """The kinds of objects that are written."""
    return [
        {
            **fields_of(flow, "per_s", "requests"),
            "per_day": flow.per_s * DAY_S,
            "stored_bytes": flow.stored_bytes,
        }
        for flow in usage.flows
    ]


def bill_fields(bill: Bill) -> dict[str, Any]:
    """A month's bill."""
    return {**fields_of(bill), "total": bill.total}


def plan_fields(
    described: Described,
    targets: Targets,
    plans: Sequence[Plan],
    day: date,
    warnings: Sequence[str],
) -> dict[str, Any]:
    """The whole document."""
    budget = targets.budget
    return {
        **described_fields(described, day, warnings),
        "targets": {
            "checkpoint_s": targets.checkpoint_s,
            "restore_s": targets.restore_s,
            "budget": budget.amount if budget else None,
            "currency": budget.currency if budget else None,
        },
        "plans": [_plan_fields(plan, targets) for plan in plans],
    }


def _plan_fields(plan: Plan, targets: Targets) -> dict[str, Any]:
    decision = plan.decision
    return {
        "provider": plan.book.provider,
        "met": decision.recommended is not None,
        "nearest": _candidate_fields(decision.nearest, targets, plan.candidates),
        "bindings": [
            {"target": binding.target, "instead": plan.candidates.index(binding.instead)}
            for binding in decision.bindings
        ],
        "obstacles": [
            {
                "target": obstacle.target,
                "alone": obstacle.alone,
                "best": plan.candidates.index(obstacle.best),
            }
            for obstacle in decision.obstacles
        ],
        "candidates": [
            _candidate_fields(candidate, targets, plan.candidates) for candidate in plan.candidates
        ],
    }


def _candidate_fields(
    candidate: Candidate, targets: Targets, among: Sequence[Candidate]
) -> dict[str, Any]:
    return {
        "candidate": among.index(candidate),
        "materialize_interval_s": candidate.interval_s,
        "replay_target_s": candidate.replay_target_s,
        "misses": excess(targets, candidate.reached),
        "bill": bill_fields(candidate.bill),
        **estimate_fields(candidate.estimate),
    }
