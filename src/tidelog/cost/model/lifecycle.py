"""How long objects live: from their upload until retention deletes them.

Invariants: an object goes after every subtask that has something in it has materialized since *and*
every checkpoint that names it is subsumed; checkpoints are subsumed in order, at a completion.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Retention:
    """How long a checkpoint keeps what it names; times in seconds."""

    checkpoints: int
    cycle_s: float
    """From one checkpoint to the next."""
    checkpoint_s: float
    """Duration of a checkpoint."""

    @property
    def slot_s(self) -> float:
        """Life of a manifest: until so many newer ones are complete."""
        return self.checkpoints * self.cycle_s

    @property
    def mean_s(self) -> float:
        """How long something stays that no subtask needs any more, on average."""
        return (self.checkpoints - 0.5) * self.cycle_s + self.checkpoint_s

    @property
    def longest_s(self) -> float:
        """How long something stays that no subtask needs any more, at most."""
        return self.slot_s + self.checkpoint_s


def segment_life_s(
    period_s: float, turns: float, foreign: float, upload_s: float, retention: Retention
) -> float:
    """Mean life of a log segment that holds changes of `turns` subtasks.

    The last of them to materialize is the one whose turn has just passed: so the segment lives a
    period, less the time since the last turn. Turns are evenly spread over these subtasks and the
    `foreign` ones, which the segment holds nothing of and whose turns come in one row.
    """
    step = period_s / (turns + foreign)
    gaps = (turns - 1) * step**2 + ((foreign + 1) * step) ** 2
    return period_s - gaps / (2 * period_s) + upload_s + retention.mean_s


def log_age_s(longest_s: float, upload_s: float, retention: Retention) -> float:
    """Age of the oldest log stored, at most."""
    return longest_s + upload_s + retention.longest_s


def replay_age_s(longest_s: float, keyed: float, upload_s: float) -> float:
    """Age of the log that a restore replays, at most, averaged over the subtasks.

    Just before one of them has materialized, the others stand evenly between new and old.
    """
    return longest_s * (keyed + 1) / (2 * keyed) + upload_s
