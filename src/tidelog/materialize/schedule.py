"""When a subtask's table is uploaded: what a job sets, and pure decisions over observed figures.

Invariants: the subtasks of a job are spread evenly over the interval, so no two of them are due
together; an unchanged table is never uploaded again; a failure moves only its own subtask.
"""

from dataclasses import dataclass
from typing import Final

from tidelog.options.declaration import option
from tidelog.options.kinds import ABOVE_ZERO, Duration, Flag, Integer, Number, Range, Size

WAIT_SHARE: Final = 0.25
"""Share of the interval after which a materialization gives way to checkpoints no more: with what
waits in front of it, it is less than half an interval late wherever the link carries the tables."""
LATE_INTERVALS: Final = 2.0
"""A materialization later than this many intervals is worth a warning."""


@dataclass(frozen=True, slots=True)
class MaterializeConfig:
    """Triggers of a materialization; times in seconds, sizes in bytes."""

    enabled: bool = option(
        True,
        Flag(),
        "Whether tables are uploaded from time to time, so that the log before can go.",
        when="Off only for short jobs and tests: the log then grows, and a restart replays all.",
    )
    interval: float = option(
        60.0,
        Duration(ABOVE_ZERO),
        "How often each table is uploaded, at moments spread over the subtasks.",
        when="Longer uploads and compacts less, keeps more log and replays more after a failure; "
        "`tidelog plan` finds it for a restore time and a budget.",
    )
    replay_target: float = option(
        2.0,
        Duration(ABOVE_ZERO),
        "A table is uploaded early when a restart would replay its log for longer than this.",
        when="Shorter makes restarts faster and uploads more often.",
        aliases=("--replay-target",),
    )
    replay_share: float = option(
        0.2,
        Number(Range(0)),
        "For `materialize.replay_target` the replay must also take this share of the time that "
        "the table takes to load.",
        when="Lower it when large tables restart too slowly because of their log.",
    )
    replay_rate: float = option(
        700_000.0,
        Number(ABOVE_ZERO),
        "Changes a second that a restore replays, for the estimate of a replay.",
        when="Set what a restore of your job reports, where it is far from this.",
    )
    load_rate: float = option(
        100e6,
        Size(per_second=True),
        "Bytes of a table that a restore loads a second, for the estimate of a replay.",
        when="Set the speed of your link to the store.",
    )
    log_factor: float = option(
        4.0,
        Number(ABOVE_ZERO),
        "A table is uploaded early when its log is this many times its size.",
        when="Lower it to keep less log; raise it when few keys change all the time.",
    )
    min_log_bytes: int = option(
        256 << 20,
        Size(Range(0)),
        "The smallest log for which `materialize.log_factor` counts.",
        when="Lower it where storage is dear and tables are small.",
    )
    bytes_per_s: float | None = option(
        None,
        Size(per_second=True),
        "Bandwidth that uploads of tables may take, over all subtasks of the process.",
        when="Set it where the link is shared and tables crowd out the log.",
        none="unlimited",
    )
    tolerable_failures: int = option(
        10,
        Integer(Range(0)),
        "Materializations of one subtask in a row that may fail before the job stops.",
        when="More where checkpoints succeed and only tables cannot be stored for a while; the log "
        "keeps everything meanwhile.",
    )
    retry_pause: float = option(
        5.0,
        Duration(ABOVE_ZERO),
        "Pause before a failed materialization is tried again.",
        when="Raise it when retries load a store that recovers.",
    )


@dataclass(frozen=True, slots=True)
class Observed:
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


def is_due(config: MaterializeConfig, observed: Observed, due: float, now: float) -> bool:
    """Whether to materialize now: by the interval, the time of a replay or the size of the log."""
    if observed.changes == 0 and not observed.inherits:
        return False
    load = observed.table_bytes / config.load_rate
    replay = observed.changes / config.replay_rate
    most_log = max(config.min_log_bytes, config.log_factor * observed.table_bytes)
    return (
        now >= due
        or replay > max(config.replay_target, config.replay_share * load)
        or observed.log_bytes > most_log
    )
