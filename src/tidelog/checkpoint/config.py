"""When checkpoints happen, as a job sets it."""

from dataclasses import dataclass
from enum import IntEnum

from tidelog.options.declaration import option
from tidelog.options.kinds import ABOVE_ZERO, Duration, Integer, Range


class Change(IntEnum):
    """What a checkpoint would hold that the last durable one does not; a greater one hides less."""

    NONE = 0
    POSITION = 1
    """How far the input is read, and event time with it: a restart would read a little again."""
    STATE = 2
    """Rows, output, or the end of a task."""


@dataclass(frozen=True, slots=True)
class CheckpointConfig:
    """When checkpoints happen; all times in seconds."""

    interval: float = option(
        1.0,
        Duration(ABOVE_ZERO),
        "Time from the start of a checkpoint to the start of the next.",
        when="Shorter commits output sooner and costs more manifests, one or two objects each; "
        "longer replays more input after a failure.",
    )
    timeout: float = option(
        600.0,
        Duration(ABOVE_ZERO),
        "A checkpoint that takes longer is given up, and counts as failed.",
        when="Raise it when barriers wait long for records, or use unaligned checkpoints.",
    )
    min_pause: float = option(
        0.0,
        Duration(),
        "Least time from the end of a checkpoint to the start of the next.",
        when="Raise it when checkpoints take nearly as long as the interval and the job should "
        "work in between.",
    )
    idle_interval: float = option(
        30.0,
        Duration(),
        "Time between two checkpoints while nothing changes but how far the input is read; while "
        "nothing changes at all, none is taken, unless it is 0: then each interval has one.",
        when="Shorter repeats less of an input that leads to nothing after a failure; 0 where an "
        "idle job must notice immediately that a newer start has taken its place.",
    )
    tolerable_failures: int = option(
        10,
        Integer(Range(0)),
        "Checkpoints in a row that may fail before the job stops.",
        when="0 to stop at the first failure; more where the store is known to pause.",
        aliases=("--tolerable-failures",),
    )
    object_check_interval: float | None = option(
        600.0,
        Duration(ABOVE_ZERO),
        "How often the store is asked whether it still has all objects that checkpoints refer to, "
        "one LIST for each kind of object; what is gone is uploaded again from the local tables.",
        when="Shorter where others delete in the bucket; longer, or never, for many small jobs "
        "whose LIST requests add up. Savepoints are always checked.",
        none="never",
    )
