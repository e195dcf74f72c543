"""Which candidate to take, what binds it, and what is in the way when none will do.

Invariants: a recommendation meets every target; of those it is the cheapest, and of equally cheap
ones the fastest to restore; without one, the obstacle and the nearest candidate are named.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tidelog.cost.plan.candidates import Candidate
from tidelog.cost.plan.targets import Target, Targets, excess

EQUAL: Final = 0.01
"""Costs that differ by less than this share count as equal: the estimate is no better."""


@dataclass(frozen=True, slots=True)
class Binding:
    """A target that keeps the recommendation from being cheaper."""

    target: Target
    instead: Candidate
    """What would be taken without it."""


@dataclass(frozen=True, slots=True)
class Obstacle:
    """A target that no candidate meets, alone or together with the others."""

    target: Target
    alone: bool
    """No candidate meets it, whatever the other targets; else they exclude each other."""
    best: Candidate
    """The candidate that comes closest to it; else the one that meets it and misses the others
    by the least."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What to choose at one provider."""

    recommended: Candidate | None
    nearest: Candidate
    """The recommendation, or what misses the targets by the least."""
    bindings: tuple[Binding, ...] = ()
    obstacles: tuple[Obstacle, ...] = ()


def decide(found: Sequence[Candidate], targets: Targets) -> Decision:
    """Choose among candidates, of which there is at least one."""
    meeting = [c for c in found if not _missed(c, targets)]
    if meeting:
        chosen = cheapest(meeting)
        return Decision(chosen, chosen, bindings=_bindings(found, targets, chosen))
    nearest = min(found, key=lambda c: max(excess(targets, c.reached).values()))
    return Decision(None, nearest, obstacles=_obstacles(found, targets))


def cheapest(found: Sequence[Candidate]) -> Candidate:
    """The one that costs least; of equally cheap ones the fastest to restore."""
    least = min(c.bill.total for c in found)
    equal = [c for c in found if c.bill.total <= least * (1 + EQUAL)]
    return min(equal, key=lambda c: c.estimate.restore_s)


def _missed(candidate: Candidate, targets: Targets) -> set[Target]:
    return {target for target, share in excess(targets, candidate.reached).items() if share > 0}


def _bindings(
    found: Sequence[Candidate], targets: Targets, chosen: Candidate
) -> tuple[Binding, ...]:
    """Targets without which a cheaper candidate would be chosen."""
    bindings = []
    for target in Target:
        free = [c for c in found if _missed(c, targets) <= {target}]
        instead = cheapest(free)
        if instead.bill.total < chosen.bill.total * (1 - EQUAL):
            bindings.append(Binding(target, instead))
    return tuple(bindings)


def _obstacles(found: Sequence[Candidate], targets: Targets) -> tuple[Obstacle, ...]:
    """The targets that no candidate meets; if there are none, those that exclude each other."""
    shares = [(excess(targets, candidate.reached), candidate) for candidate in found]
    asked = list(shares[0][0])
    alone = [target for target in asked if all(share[target] > 0 for share, _ in shares)]
    if alone:
        return tuple(
            Obstacle(target, True, min(shares, key=lambda pair: pair[0][target])[1])
            for target in alone
        )
    missed = [target for target in asked if any(share[target] > 0 for share, _ in shares)]
    return tuple(
        Obstacle(
            target,
            False,
            min(
                (pair for pair in shares if pair[0][target] <= 0),
                key=lambda pair: max(pair[0].values()),
            )[1],
        )
        for target in missed
    )
