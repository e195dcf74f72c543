"""What a plan has to reach.

Invariant: a target is met or missed by a share of itself, so targets of different kinds compare.
"""

from dataclasses import dataclass
from enum import StrEnum

from tidelog.errors import require


class Target(StrEnum):
    """What can be asked of a plan."""

    RESTORE = "restore"
    BUDGET = "budget"
    CHECKPOINT = "checkpoint"


@dataclass(frozen=True, slots=True)
class Money:
    """An amount in a currency of three letters."""

    amount: float
    currency: str

    def __str__(self) -> str:
        return f"{self.amount:.2f} {self.currency}"


@dataclass(frozen=True, slots=True)
class Targets:
    """All that is asked; None: anything will do. The interval of checkpoints is always asked."""

    checkpoint_s: float
    restore_s: float | None = None
    budget: Money | None = None

    def __post_init__(self) -> None:
        """Raises ConfigError for targets that mean nothing."""
        for what, value in (
            ("--restore", self.restore_s),
            ("--budget", self.budget.amount if self.budget else None),
        ):
            require(what, value, value is None or value > 0, "more than 0")


@dataclass(frozen=True, slots=True)
class Reached:
    """What a candidate reaches; times in seconds."""

    checkpoint_s: float
    """The interval between checkpoints that the job keeps."""
    restore_s: float
    cost: Money


def excess(targets: Targets, reached: Reached) -> dict[Target, float]:
    """For each target that was asked, the share by which it is missed; 0 or less when it is met."""
    found = {Target.CHECKPOINT: reached.checkpoint_s / targets.checkpoint_s - 1}
    if targets.restore_s is not None:
        found[Target.RESTORE] = reached.restore_s / targets.restore_s - 1
    if targets.budget is not None and targets.budget.currency == reached.cost.currency:
        found[Target.BUDGET] = reached.cost.amount / targets.budget.amount - 1
    return found
