"""What a job sets of its state: when write buffers are flushed, and the bounds of a restore."""

from dataclasses import dataclass, replace
from typing import Literal, get_args

from tidelog.options.declaration import option
from tidelog.options.kinds import Choice, Duration, Integer, Range, Size

Begin = Literal["at-once", "when-whole"]


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


@dataclass(frozen=True, slots=True)
class RestoreConfig:
    """When a job begins after a restore, and the bounds of the restore; sizes in bytes."""

    concurrency: int = option(
        8,
        Integer(Range(1, 1024)),
        "Table files of a subtask that a restore fetches at a time.",
        when="Raise it on fast links with slow answers; lower it when the store throttles.",
    )
    read_ahead_bytes: int = option(
        64 << 20,
        Size(),
        "Log that a restore reads ahead, over all subtasks; at most a quarter of `memory`.",
        when="Raise it, with `memory`, when a restore waits for the store.",
    )
    replay_bytes: int = option(
        256 << 20,
        Size(),
        "Rows that a replay merges before they go to the tables, over all subtasks; at most 3/8 "
        "of `memory`.",
        when="Raise it, with `memory`, when long logs change the same keys over and over.",
    )
    begin: Begin = option(
        "at-once",
        Choice(get_args(Begin)),
        "When a job handles records again: while its tables arrive, with what a record needs "
        "fetched first, or when all tables are whole.",
        when="when-whole for a job that scans keys or maps much, or must begin at full speed.",
    )
    whole_bytes: int = option(
        64 << 20,
        Size(Range(0)),
        "With `at-once`: tables of a process up to this size together are loaded whole first.",
        when="0 where the link is so slow that even a small state takes long.",
    )

    def shared_by(self, subtasks: int, memory: int) -> "RestoreConfig":
        """The bounds of each of so many that are restored at once within that memory."""
        ahead = min(self.read_ahead_bytes, memory // 4) // max(1, subtasks)
        merged = min(self.replay_bytes, 3 * memory // 8) // max(1, subtasks)
        return replace(self, read_ahead_bytes=ahead, replay_bytes=merged)
