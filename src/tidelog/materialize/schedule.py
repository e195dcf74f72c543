"""When a subtask's table is uploaded: pure decisions over observed figures.

Invariants: the subtasks of a job are spread evenly over the interval, so no two of them are due
together; an unchanged table is never uploaded again; a failure moves only its own subtask.
"""

from enum import StrEnum
from typing import Final

import msgspec

from tidelog.materialize.config import MaterializeConfig

WAIT_SHARE: Final = 0.25
"""Share of the interval after which a materialization gives way to checkpoints no more: with what
waits in front of it, it is less than half an interval late wherever the link carries the tables."""
LATE_INTERVALS: Final = 2.0
"""A materialization later than this many intervals is worth a warning."""


class Reason(StrEnum):
    """Why a materialization starts."""

    INTERVAL = "interval"
    LOG_SIZE = "log size"
    REPLAY_TIME = "replay time"


class Observed(msgspec.Struct, frozen=True):
    """A subtask as the scheduler sees it."""

    changes: int
    """Changes that a restore would replay."""
    log_bytes: int
    table_bytes: int
    inherits: bool = False
    """The subtask still builds on what earlier ones materialized."""


def first_due(rank: int, subtasks: int, interval: float, start: float) -> float:
    """When subtask number `rank` of `subtasks` is due first: evenly spaced, never at once."""
    return start + interval * (rank + 1) / subtasks


def next_due(due: float, interval: float, now: float) -> float:
    """The next time on the subtask's own phase after `now`."""
    return due if now < due else due + (missed(due, interval, now) + 1) * interval


def missed(due: float, interval: float, now: float) -> int:
    """Whole intervals that passed since it was due: materializations that never took place."""
    return 0 if now < due else int((now - due) // interval)


def finish_by(due: float, interval: float, now: float) -> float:
    """When an upload that starts now is to be done: until then it may wait for others."""
    return min(due, now) + WAIT_SHARE * interval


def reason_to_start(
    config: MaterializeConfig, observed: Observed, due: float, now: float
) -> Reason | None:
    """Why to materialize now, or None."""
    if observed.changes == 0 and not observed.inherits:
        return None
    load = observed.table_bytes / config.load_rate
    if observed.changes / config.replay_rate > max(
        config.replay_target, config.replay_share * load
    ):
        return Reason.REPLAY_TIME
    big = observed.log_bytes > config.min_log_bytes
    if big and observed.log_bytes > config.log_factor * observed.table_bytes:
        return Reason.LOG_SIZE
    return Reason.INTERVAL if now >= due else None
