"""Figures of the log upload."""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

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
    largest_segment: int = 0
    recent_seconds: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT))
    recent_bytes: deque[int] = field(default_factory=lambda: deque(maxlen=_RECENT))
    recent_blocks: deque[int] = field(default_factory=lambda: deque(maxlen=_RECENT))

    def uploaded(self, size: int, blocks: int, seconds: float) -> None:
        """Account for one segment."""
        self.uploads += 1
        self.bytes += size
        self.blocks += blocks
        self.seconds += seconds
        self.largest_segment = max(self.largest_segment, size)
        self.recent_seconds.append(seconds)
        self.recent_bytes.append(size)
        self.recent_blocks.append(blocks)
