"""The event times of records, and which of them come too late for an operator."""

from collections.abc import Callable

from tidelog.errors import ConfigError
from tidelog.runtime.channels.messages import Batch, KeyedBatch, SideBatch
from tidelog.state.event_time import EventTime


def event_times(batch: Batch, operator: str, streams: str = "") -> list[int]:
    """The event times of a buffer's records; raises ConfigError where they have none."""
    if batch.times is None:
        raise ConfigError(
            f"{operator} on a stream without event time",
            action=f"call .event_time(...) before .key_by(...){streams}",
        )
    return batch.times


def has_passed(time: int, watermark: int) -> bool:
    """Whether a record with this time is late where no time after its own counts."""
    return time <= watermark


def on_time(
    batch: KeyedBatch,
    times: list[int],
    event_time: EventTime,
    is_late: Callable[[int, int], bool],
    tag: str | None,
) -> tuple[KeyedBatch, SideBatch | None]:
    """(the records that are not late by their time and the watermark, late ones for the side
    output `tag`).
    """
    if not event_time.ahead and not is_late(min(times), event_time.watermark):
        return batch, None
    fields = zip(times, batch.groups, strict=True)
    return batch.divided([not is_late(time, event_time.of(group)) for time, group in fields], tag)
