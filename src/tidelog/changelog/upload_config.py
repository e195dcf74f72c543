"""When segments of the log are uploaded, as a job sets it."""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from tidelog.options.declaration import option
from tidelog.options.kinds import Duration, Integer, Range, Size

COMPRESSION_LEVEL: Final = 1
"""Level of zstandard unless somebody chose another; 0 stores a payload as it is."""


@dataclass(frozen=True, slots=True)
class UploadConfig:
    """When segments of the log are uploaded; sizes in bytes, times in seconds."""

    segment_bytes: int = option(
        4 << 20,
        Size(),
        "Log, before compression, that starts an upload.",
        when="Raise it for fewer and larger objects; lower it where uploads take long and "
        "checkpoints wait for the last one. It is cut to a quarter of what `upload.limit_bytes` "
        "and the memory budget leave.",
    )
    max_age: float = option(
        0.25,
        Duration(),
        "The longest that a change waits for its upload between checkpoints.",
        when="Raise it, up to the checkpoint interval, for fewer uploads of a slow stream; lower "
        "it when checkpoints are rare and each has much left to upload.",
    )
    linger: float = option(
        0.010,
        Duration(Range(0, 60)),
        "How long a checkpoint waits for the log of other subtasks, to share an upload.",
        when="Raise it in jobs of many subtasks whose checkpoints make several small segments; "
        "0 does not wait.",
    )
    inline_bytes: int = option(
        20_000,
        Size(Range(0)),
        "A rest of log up to this size goes into the checkpoint's manifest, without an upload.",
        when="Lower it when manifests get large in jobs of many subtasks; 0 uploads everything.",
    )
    limit_bytes: int = option(
        128 << 20,
        Size(Range(0)),
        "Log that is not durable yet, before compression; writers wait above it.",
        when="Raise it, with `memory`, to ride out longer pauses of the store; never more than an "
        "eighth of `memory` is used.",
    )
    concurrency: int = option(
        4,
        Integer(Range(1, 1024)),
        "Uploads of segments at a time.",
        when="Raise it where the link has room and `log_backpressured_seconds` grows.",
    )
    compression_level: int = option(
        COMPRESSION_LEVEL,
        Integer(Range(0, 22)),
        "Level of zstandard for blocks of the log; 0 stores them as they are.",
        when="0 where the processor is short and the link is not; 3 to 6 where traffic is dear.",
    )


_RECENT: Final = 1024


@dataclass(slots=True)
class UploadMetrics:
    """Counters since the start, and figures of the last segments; bytes and seconds."""

    uploads: int = 0
    failures: int = 0
    bytes: int = 0
    blocks: int = 0
    seconds: float = 0.0
    backpressured_s: float = 0.0
    queued_bytes: int = 0
    largest_bytes: int = 0
    latency_s: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT))
    segment_bytes: deque[int] = field(default_factory=lambda: deque(maxlen=_RECENT))
    segment_blocks: deque[int] = field(default_factory=lambda: deque(maxlen=_RECENT))

    @property
    def requests(self) -> int:
        """Segments uploaded, and uploads that failed."""
        return self.uploads + self.failures

    def uploaded(self, size: int, blocks: int, seconds: float) -> None:
        self.uploads += 1
        self.bytes += size
        self.blocks += blocks
        self.seconds += seconds
        self.largest_bytes = max(self.largest_bytes, size)
        self.latency_s.append(seconds)
        self.segment_bytes.append(size)
        self.segment_blocks.append(blocks)
