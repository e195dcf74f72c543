"""When write buffers are flushed, as a job sets it."""

from dataclasses import dataclass

from tidelog.options.declaration import option
from tidelog.options.kinds import Duration, Integer, Range, Size


@dataclass(frozen=True, slots=True)
class FlushConfig:
    """When the write buffer is flushed besides at a barrier."""

    rows: int = option(
        65_536,
        Integer(Range(1)),
        "Changed rows of a subtask that start a flush to table and log.",
        when="Raise it when the same keys change often, so that more changes become one.",
    )
    bytes: int = option(
        5 << 19,
        Size(),
        "Bytes of changed rows, as the log stores them, that start a flush.",
        when="Raise it with `flush.rows` when rows are large.",
    )
    max_age: float = option(
        1.0,
        Duration(),
        "The longest that a change stays unflushed while the job is busy.",
        when="Raise it to the checkpoint interval where hot keys dominate.",
    )
    cache_bytes: int | None = option(
        None,
        Size(Range(0)),
        "Memory of the rows that a subtask keeps for reads after a flush.",
        when="Set it so that one subtask leaves room for others; `automatic` is as much as the "
        "memory for rows has room for.",
        none="automatic",
    )
