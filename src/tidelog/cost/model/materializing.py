"""When tables are really materialized, how long that takes, and how old the log gets meanwhile.

Invariants: the triggers are those of `tidelog.materialize.schedule`, looked at as often as the
runtime does; subtasks materialize at evenly spread phases, one at a time in a process.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from math import ceil

from tidelog.cost.model.restoring import Objects, side_by_side_s
from tidelog.cost.model.settings import Settings
from tidelog.cost.model.tables import Snapshot, TableRules, snapshot
from tidelog.cost.model.uploads import LogCycle
from tidelog.cost.model.workload import Workload
from tidelog.materialize.materializer import LOOK_S
from tidelog.materialize.pacing import TRANSFERS

_ROUNDS = 8
"""Upload time and interval depend on each other: so many rounds settle them."""
_LEAST_SHARE = 0.1
"""Share of the bandwidth that tables get when the log leaves them nothing."""


class Trigger(StrEnum):
    """What starts most materializations."""

    INTERVAL = "interval"
    LOG_SIZE = "log size"
    REPLAY_TIME = "replay time"
    BANDWIDTH = "bandwidth"
    """Uploading all tables takes the whole interval, so none starts earlier."""


@dataclass(frozen=True, slots=True)
class Materializing:
    """The materializations of one subtask with keyed state; times in seconds."""

    trigger: Trigger
    period: float
    """Between two materializations, on average."""
    longest: float
    """Between two materializations, at most."""
    upload: float
    """From the frozen table to the durable descriptor."""
    table: Snapshot


def materializing(
    workload: Workload, settings: Settings, rules: TableRules, log: LogCycle, cycle_s: float
) -> Materializing:
    """Find the interval that the triggers, and the time uploads take, lead to."""
    subtasks, interval = settings.parallelism, settings.materialize.interval
    changes_per_s = log.changes / cycle_s * settings.processes
    bytes_per_s = log.segment_bytes / cycle_s * settings.processes
    table = snapshot(workload, subtasks, rules, changes_per_s, interval)
    trigger, early = _early(
        settings, table.stored_bytes, changes_per_s / subtasks, bytes_per_s / subtasks
    )
    times = 1 if early >= interval else ceil(interval / early)
    period, longest = interval / times, min(interval, early)
    upload = 0.0
    for _ in range(_ROUNDS):
        table = snapshot(workload, subtasks, rules, changes_per_s, period)
        upload = _upload_s(settings, table, log.segment_bytes / cycle_s)
        taken = upload * settings.keyed_per_process
        if taken > period:
            trigger, period, longest = Trigger.BANDWIDTH, taken, max(taken, longest)
    return Materializing(trigger, period, longest, upload, table)


def _early(
    settings: Settings, table_bytes: float, changes_per_s: float, bytes_per_s: float
) -> tuple[Trigger, float]:
    """The trigger that comes first and the seconds until then, the interval's among them."""
    config = settings.materialize
    load = table_bytes / config.load_rate
    replay = max(config.replay_target, config.replay_share * load) * config.replay_rate
    log = max(config.min_log_bytes, config.log_factor * table_bytes)
    found = [
        (config.interval, Trigger.INTERVAL),
        (_looked_at(replay / changes_per_s), Trigger.REPLAY_TIME),
        (_looked_at(log / bytes_per_s), Trigger.LOG_SIZE),
    ]
    seconds, trigger = min(found, key=lambda pair: pair[0])
    return trigger, seconds


def _looked_at(seconds: float) -> float:
    """When the runtime, which looks every LOOK_S seconds, sees a trigger that holds by now."""
    return ceil(seconds / LOOK_S) * LOOK_S


def _upload_s(settings: Settings, table: Snapshot, log_bytes_per_s: float) -> float:
    """Some files at a time, in what the log leaves of the link, then the descriptor."""
    link = settings.link
    free = max(link.bytes_per_s - log_bytes_per_s, _LEAST_SHARE * link.bytes_per_s)
    speed = min(free, settings.materialize.bytes_per_s or free)
    files = Objects(table.new_files, table.new_bytes)
    return side_by_side_s(files, TRANSFERS, replace(link, bytes_per_s=speed)) + link.latency_s
