"""The JSON of `plan`: docs/cli-json.md.

Invariant: what stands for a candidate is the same everywhere in the document.
"""

from collections.abc import Sequence
from datetime import date
from typing import Any

from tidelog.cli.estimate_description import Described
from tidelog.cli.estimate_fields import bill_fields, described_fields, estimate_fields
from tidelog.estimate.candidates import Candidate
from tidelog.estimate.planning import Plan
from tidelog.estimate.targets import Targets, excess


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
