"""Relays: stateless jobs that run at least once, or exactly once; no record may be missing.

Invariant: every record is one of its own, so one that comes again is seen to come again.
"""

from dataclasses import dataclass
from random import Random

from tests.simulator.jobs.plan import Branch, Plan, make_plan
from tidelog.runtime.config import Mode


@dataclass(frozen=True, slots=True)
class RelayPlan(Plan):
    """A plan whose branches hold no state."""

    chosen: Mode = "at-least-once"

    @property
    def mode(self) -> Mode:
        return self.chosen


def relay(rng: Random) -> RelayPlan:
    """A random job of this kind."""
    plan = make_plan(rng)
    branches = tuple(Branch((), f"copy-{n}") for n in range(rng.choice((1, 2))))
    mode: Mode = rng.choice(("at-least-once", "at-least-once", "exactly-once"))
    return RelayPlan(plan.sources, branches, plan.parallelism, mode)
