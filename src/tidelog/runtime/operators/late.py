"""Records that come when event time has passed them: counted, and dropped or set aside."""

from itertools import compress

from tidelog.runtime.channels.messages import KeyedBatch, SideBatch


def divided(
    batch: KeyedBatch, on_time: list[bool], tag: str | None
) -> tuple[KeyedBatch, SideBatch | None]:
    """(records that are on time, late ones for the side output `tag`), None if there are none."""
    assert batch.times is not None
    if all(on_time):
        return batch, None
    columns = (batch.records, batch.times, batch.keys, batch.groups)
    late = [not each for each in on_time]
    records, times = compress(batch.records, late), compress(batch.times, late)
    return (
        KeyedBatch(*(list(compress(column, on_time)) for column in columns)),
        SideBatch(list(records), list(times), tag or ""),
    )
