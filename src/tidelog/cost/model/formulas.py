"""Rules of thumb for the log, how large documents are, and how long objects live.

Invariants: each function is its formula and nothing else; times are seconds. The rules of thumb
size the state changelog of Apache Flink (FLIP-158) as well, where the idea comes from; what they
leave out (write buffer, retention, staggering) is in `embedded.py`.
"""

from dataclasses import dataclass
from typing import Final


def log_peak_bytes(writes_per_s: float, bytes_per_write: float, interval_s: float) -> float:
    """Log that piles up until a materialization cuts it: what was written in one interval.

    `writes_per_s` counts what reaches the log, so after the write buffer has combined it;
    `bytes_per_write` is the size as stored.
    """
    return writes_per_s * bytes_per_write * interval_s


def window_log_peak_bytes(rows_per_s: float, row_bytes: float, interval_s: float) -> float:
    """The same for windows: 2 x (slice + timer) rate x bytes x interval.

    Every slice and every timer is a row that is written once and deleted once, hence the 2;
    `row_bytes` is the mean of both. A slice that is updated while it is open adds ordinary writes.
    Windows that share no slices, as those of Flink's window operator, are a slice each.
    """
    return 2 * log_peak_bytes(rows_per_s, row_bytes, interval_s)


_BASE64: Final = 4 / 3


def manifest_bytes(subtasks: float, log_ranges: float, inline_bytes: float) -> float:
    """A checkpoint's manifest, as this release writes it on average: numbers have more or fewer
    digits, and names differ.
    """
    return 477 + 254 * subtasks + 89 * log_ranges + _BASE64 * inline_bytes


def descriptor_bytes(files: float, private_bytes: float) -> float:
    """The same of a descriptor that names shared files and holds private ones."""
    return 164 + 139 * files + _BASE64 * private_bytes


@dataclass(frozen=True, slots=True)
class Retention:
    """How long a checkpoint keeps what it names.

    An object goes after its subtasks have materialized since *and* every checkpoint that names it
    is subsumed; checkpoints are subsumed in order, when one completes.
    """

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
        """The same, at most."""
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


def replay_age_s(longest_s: float, keyed: float, upload_s: float) -> float:
    """Age of the log that a restore replays, at most, averaged over the subtasks.

    Just before one of them has materialized, the others stand evenly between new and old.
    """
    return longest_s * (keyed + 1) / (2 * keyed) + upload_s
