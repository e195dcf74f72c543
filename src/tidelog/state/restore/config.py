"""How much of a restore happens at a time, as a job sets it."""

from dataclasses import dataclass, replace

from tidelog.options.declaration import option
from tidelog.options.kinds import Integer, Range, Size


@dataclass(frozen=True, slots=True)
class RestoreConfig:
    """Bounds of a restore; sizes in bytes."""

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

    def shared_by(self, subtasks: int, memory: int) -> "RestoreConfig":
        """The bounds of each of so many that are restored at once within that memory."""
        ahead = min(self.read_ahead_bytes, memory // 4) // max(1, subtasks)
        merged = min(self.replay_bytes, 3 * memory // 8) // max(1, subtasks)
        return replace(self, read_ahead_bytes=ahead, replay_bytes=merged)
