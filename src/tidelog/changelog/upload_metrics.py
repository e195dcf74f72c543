"""Figures of the log upload."""

from collections import deque
from typing import Final

import msgspec

_RECENT: Final = 1024


class UploadMetrics(msgspec.Struct):
    """Counters since the start, and figures of the last segments; bytes and seconds."""

    uploads: int = 0
    failures: int = 0
    bytes: int = 0
    blocks: int = 0
    seconds: float = 0.0
    backpressured_s: float = 0.0
    queued_bytes: int = 0
    largest_bytes: int = 0
    latency_s: deque[float] = msgspec.field(default_factory=lambda: deque(maxlen=_RECENT))
    segment_bytes: deque[int] = msgspec.field(default_factory=lambda: deque(maxlen=_RECENT))
    segment_blocks: deque[int] = msgspec.field(default_factory=lambda: deque(maxlen=_RECENT))

    @property
    def requests(self) -> int:
        """Segments uploaded, and uploads that failed."""
        return self.uploads + self.failures

    def uploaded(self, size: int, blocks: int, seconds: float) -> None:
        """Account for one segment."""
        self.uploads += 1
        self.bytes += size
        self.blocks += blocks
        self.seconds += seconds
        self.largest_bytes = max(self.largest_bytes, size)
        self.latency_s.append(seconds)
        self.segment_bytes.append(size)
        self.segment_blocks.append(blocks)
